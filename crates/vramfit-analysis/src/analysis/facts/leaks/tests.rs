//! What is counted, whatever the order of the events.

use proptest::prelude::*;

use super::*;
use crate::analysis::arrays::AllocationKey;

/// Groups and programs of a generated run.
const GROUPS: u32 = 3;
const PROGRAMS: usize = 3;

/// What [`Leaks`] is told.
#[derive(Clone, Copy, Debug)]
enum Told {
    Allocated(Block),
    Freed(Block),
    Executed { call: ProgramCall, evidence: Evidence, needed: u128 },
}

fn block() -> impl Strategy<Value = Block> {
    (0..GROUPS, 1_u64..5).prop_map(|(owner, bytes)| Block {
        number: 0,
        device: 0,
        owner,
        address: 0,
        requested_bytes: bytes,
        allocated_bytes: bytes,
    })
}

fn told() -> impl Strategy<Value = Told> {
    let evidence = prop_oneof![
        Just(Evidence::MostMemory),
        Just(Evidence::BackwardPass),
        Just(Evidence::StateReturned),
    ];
    let call = (0..PROGRAMS, any::<[bool; 3]>()).prop_map(|(entry, flags)| {
        let [is_likeliest, is_of_training, is_first] = flags;
        ProgramCall { entry, is_likeliest, is_of_training, is_first, event: 0 }
    });
    let executed = (call, evidence, 0_u128..100)
        .prop_map(|(call, evidence, needed)| Told::Executed { call, evidence, needed });
    prop_oneof![
        3 => block().prop_map(Told::Allocated),
        1 => block().prop_map(Told::Freed),
        3 => executed,
    ]
}

impl Leaks {
    fn on(&mut self, told: Told) {
        match told {
            Told::Allocated(block) => self.on_allocated(&block),
            Told::Freed(block) => self.on_freed(&block),
            Told::Executed { call, evidence, needed } => self.on_execution(call, |entry| {
                if entry == call.entry { (evidence, needed) } else { (Evidence::MostMemory, 10) }
            }),
        }
    }
}

fn sites() -> AllocationSites {
    let mut sites = AllocationSites::default();
    for site in 0..GROUPS {
        let key = AllocationKey {
            device: 0,
            purpose: Purpose::Output,
            site: TextId(site),
            entry: 0,
            slot: 0,
        };
        assert_eq!(sites.number(key), site);
    }
    sites
}

proptest! {
    /// Whichever program is taken for the step, and however often that changes, no group has grown in a step that was
    /// not counted yet, nor in more steps than were counted.
    #[test]
    fn no_group_is_ahead_of_the_steps(run in prop::collection::vec(told(), 0..200)) {
        let sites = sites();
        let mut leaks = Leaks::default();
        for told in run {
            leaks.on(told);
            for group in &leaks.sites {
                prop_assert!(group.last <= leaks.steps, "{group:?} of {}", leaks.steps);
                prop_assert!(group.growths <= leaks.steps, "{group:?} of {}", leaks.steps);
            }
            for candidate in leaks.candidates(&sites) {
                prop_assert!((candidate.steps - 1) * candidate.every_steps < leaks.steps);
            }
        }
    }
}
