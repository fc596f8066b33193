//! Who uses a value: the instructions that read it, through everything that passes it on, by their phase.

use rustc_hash::FxHashSet;

use crate::program::hlo::{HloGraph, HloIndex, HloPosition, WHOLE};
use crate::program::phase::Phase;

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
pub(super) fn users_of(graph: &HloGraph<'_>, places: &[HloPosition]) -> Users {
    walk(graph, places, false)
}

/// Finds who reads an argument: as [`users_of`], but operation by operation inside of fusions, and through
/// what only moves its values or changes their type, outside of the differentiated function.
pub(super) fn readers_of(graph: &HloGraph<'_>, place: HloPosition) -> Users {
    walk(graph, &[place], true)
}

fn walk(graph: &HloGraph<'_>, places: &[HloPosition], closely: bool) -> Users {
    let phase = |at: HloIndex| match closely {
        true => graph.phase_of_one(at),
        false => graph.phase(at),
    };
    let mut users = Users::default();
    let mut seen: FxHashSet<HloPosition> = places.iter().copied().collect();
    let mut open: Vec<HloPosition> = places.to_vec();
    let mut steps = 0;
    while let Some(place) = open.pop() {
        let mut next = Vec::new();
        for &(user, number) in graph.users(place.0) {
            steps += 1;
            if users == Users::ALL || steps > MAX_STEPS {
                return users;
            }
            let passed = (closely && moves(graph, place, user, number, &mut next))
                || passes_on(graph, place, user, number, &mut next);
            if !passed {
                match phase(user) {
                    Phase::Forward => users.forward = true,
                    Phase::Backward => users.backward = true,
                    // XLA's own copies say nothing; what comes of them does.
                    Phase::Outside if graph.get(user).opcode == "copy" => next.push((user, WHOLE)),
                    Phase::Outside => users.outside = true,
                }
            }
        }
        next.extend(graph.readers(place.0, place.1).map(|taker| (taker, WHOLE)));
        if graph.is_root(place.0) {
            let callers = graph.callers_of_parent(place.0);
            users.returned |= callers.is_empty();
            let through = callers.iter().filter(|&&caller| {
                let opcode = graph.get(caller).opcode.as_str();
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
    graph: &HloGraph<'_>,
    place: HloPosition,
    user: HloIndex,
    number: u32,
    next: &mut Vec<HloPosition>,
) -> bool {
    let parameter = |called: usize, number: i64| {
        let parameter = graph.parameter(user, called, number);
        parameter.map(|parameter| (parameter, place.1))
    };
    match graph.get(user).opcode.as_str() {
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
    graph: &HloGraph<'_>,
    place: HloPosition,
    user: HloIndex,
    number: u32,
    next: &mut Vec<HloPosition>,
) -> bool {
    match graph.get(user).opcode.as_str() {
        "while" => {
            let inside = [0, 1].into_iter().filter_map(|called| graph.parameter(user, called, 0));
            next.extend(inside.map(|inside| (inside, place.1)));
            // What a loop ends with is what it began with only where no round changes it.
            if graph.is_unchanged_by(user, place.1) {
                next.push((user, place.1));
            }
        }
        "fusion" => {
            let inside = graph.parameter(user, 0, i64::from(number));
            next.extend(inside.map(|inside| (inside, place.1)));
        }
        "convert" | "copy" | "reshape" | "transpose" | "slice" | "all-gather"
        | "all-gather-start" | "all-gather-done" | "dynamic-slice"
            if number == 0 && graph.phase_of_one(user) == Phase::Outside =>
        {
            next.push((user, WHOLE));
        }
        // XLA joins products that share a factor, and their other factors.
        "concatenate" if graph.phase_of_one(user) == Phase::Outside => next.push((user, WHOLE)),
        _ => return false,
    }
    true
}
