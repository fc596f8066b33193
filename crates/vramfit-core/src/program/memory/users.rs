//! Who uses a value: the instructions that read it, through everything that passes it on, by their phase.

use rustc_hash::FxHashSet;

use super::index::{HloIndex, HloPosition, ModuleIndex, WHOLE};
use super::phase::Phase;

/// Places that are looked at to find who uses a value, …
const MAX_VISITED: usize = 2048;
/// … and steps from one to another.
const MAX_STEPS: usize = 16_384;

/// Which phases the instructions belong to that use a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    pub(super) forward: bool,
    pub(super) backward: bool,
    pub(super) outside: bool,
    /// It is part of what the program returns.
    pub(super) returned: bool,
}

impl Users {
    const ALL: Users = Users { forward: true, backward: true, outside: true, returned: true };
}

/// Finds who uses the values at some places, through everything that passes them on unchanged.
pub(super) fn users_of(index: &ModuleIndex<'_>, places: &[HloPosition]) -> Users {
    walk(index, places, false)
}

/// Finds who reads an argument: as [`users_of`], but operation by operation inside of fusions, and through
/// what only moves its values or changes their type, outside of the differentiated function.
pub(super) fn readers_of(index: &ModuleIndex<'_>, place: HloPosition) -> Users {
    walk(index, &[place], true)
}

fn walk(index: &ModuleIndex<'_>, places: &[HloPosition], closely: bool) -> Users {
    let phase = |at: HloIndex| match closely {
        true => index.phase_of_one(at),
        false => index.phase(at),
    };
    let mut users = Users::default();
    let mut seen: FxHashSet<HloPosition> = places.iter().copied().collect();
    let mut open: Vec<HloPosition> = places.to_vec();
    let mut steps = 0;
    while let Some(place) = open.pop() {
        let mut next = Vec::new();
        for &(user, number) in index.users(place.0) {
            steps += 1;
            if users == Users::ALL || steps > MAX_STEPS {
                return users;
            }
            let passed = (closely && moves(index, place, user, number, &mut next))
                || passes_on(index, place, user, number, &mut next);
            if !passed {
                match phase(user) {
                    Phase::Forward => users.forward = true,
                    Phase::Backward => users.backward = true,
                    // XLA's own copies say nothing; what comes of them does.
                    Phase::Outside if index.get(user).opcode == "copy" => next.push((user, WHOLE)),
                    Phase::Outside => users.outside = true,
                }
            }
        }
        next.extend(index.readers(place.0, place.1).map(|taker| (taker, WHOLE)));
        if index.is_root(place.0) {
            let callers = index.callers_of_parent(place.0);
            users.returned |= callers.is_empty();
            let through = callers.iter().filter(|&&caller| {
                let opcode = index.get(caller).opcode.as_str();
                matches!(opcode, "while" | "call" | "conditional")
                    || (closely && opcode == "fusion")
            });
            next.extend(through.take(MAX_VISITED).map(|&caller| (caller, place.1)));
        }
        steps += next.len();
        for place in next {
            if seen.len() < MAX_VISITED && seen.insert(place) {
                open.push(place);
            }
        }
    }
    users
}

/// Returns `true` if `user` only passes the value at a place on, which is its operand of that number, and
/// adds where to.
fn passes_on(
    index: &ModuleIndex<'_>,
    place: HloPosition,
    user: HloIndex,
    number: u32,
    next: &mut Vec<HloPosition>,
) -> bool {
    let parameter = |called: usize, number: i64| {
        let parameter = index.parameter(user, called, number);
        parameter.map(|parameter| (parameter, place.1))
    };
    match index.get(user).opcode.as_str() {
        "bitcast" | "optimization-barrier" | "add-dependency" | "copy-start" | "copy-done" => {
            next.push((user, place.1));
        }
        "tuple" => next.push((user, i64::from(number))),
        "while" => {
            next.push((user, place.1));
            next.extend([0, 1].into_iter().filter_map(|called| parameter(called, 0)));
        }
        "call" => next.extend(parameter(0, i64::from(number))),
        // Operand 0 chooses; operand n is the parameter of branch n - 1.
        "conditional" if number > 0 => next.extend(parameter(number as usize - 1, 0)),
        _ => return false,
    }
    true
}

/// Returns `true` if `user` only moves the value at a place or changes its type, or is a fusion or a loop, and
/// adds where the way goes on.
fn moves(
    index: &ModuleIndex<'_>,
    place: HloPosition,
    user: HloIndex,
    number: u32,
    next: &mut Vec<HloPosition>,
) -> bool {
    match index.get(user).opcode.as_str() {
        "while" => {
            let inside = [0, 1].into_iter().filter_map(|called| index.parameter(user, called, 0));
            next.extend(inside.map(|inside| (inside, place.1)));
            // What a loop ends with is what it began with only where no round changes it.
            if index.is_unchanged_by(user, place.1) {
                next.push((user, place.1));
            }
        }
        "fusion" => {
            let inside = index.parameter(user, 0, i64::from(number));
            next.extend(inside.map(|inside| (inside, place.1)));
        }
        "convert" | "copy" | "reshape" | "transpose" | "slice" | "all-gather"
        | "all-gather-start" | "all-gather-done" | "dynamic-slice"
            if number == 0 && index.phase_of_one(user) == Phase::Outside =>
        {
            next.push((user, WHOLE));
        }
        // XLA joins products that share a factor, and their other factors.
        "concatenate" if index.phase_of_one(user) == Phase::Outside => next.push((user, WHOLE)),
        _ => return false,
    }
    true
}
