//! The cards that a command is about: named on the command line, or those a program started here
//! will see.

use std::path::PathBuf;

use vramfit_core::gpu::{self, Gpu};
use vramfit_core::published;
use vramfit_core::settings::{self, Room, outside_bytes};
use vramfit_core::shared_gpus::{self, Holding, Usage};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

/// A card and how many of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cards {
    pub(crate) gpu: Gpu,
    /// The name that the plugin will look up: a catalogue name, or the absolute path of a file.
    pub(crate) name: String,
    pub(crate) count: u32,
}

/// More devices than one process ever drives; a larger number is a slip of the finger.
const MAX_CARDS: u32 = 1024;

/// Reads `NAME` or `NAMExN`.
///
/// # Errors
/// `unknown-gpu` for a name that is not in the catalogue, `invalid-argument` for a bad number.
pub(crate) fn cards(text: &str) -> Result<Cards> {
    let refusal = match gpu::find(text) {
        Ok(gpu) => return Ok(one_kind(text, gpu, 1)),
        Err(refusal) => refusal,
    };
    // Only now look for a number: names may hold an `x` and digits themselves.
    let Some((name, digits)) = text.rsplit_once(['x', 'X', '*']) else {
        return Err(refusal);
    };
    if name.is_empty() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refusal);
    }
    let Ok(gpu) = gpu::find(name) else {
        return Err(refusal);
    };
    match digits.parse() {
        Ok(count) if (1..=MAX_CARDS).contains(&count) => Ok(one_kind(name, gpu, count)),
        _ => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("there cannot be {digits} cards of `{name}`"),
        )
        .hint(format!(
            "write a number from 1 to {MAX_CARDS}, such as `{name}x8`"
        ))),
    }
}

fn one_kind(written: &str, gpu: Gpu, count: u32) -> Cards {
    // A card file is named by its path, and the program may change its directory before JAX asks.
    let name = match std::path::absolute(written) {
        Ok(path) if written.to_ascii_lowercase().ends_with(".toml") => {
            path.to_string_lossy().into_owned()
        }
        _ => gpu.name.clone(),
    };
    Cards { gpu, name, count }
}

/// What a user says about the cards, where the machine is not to be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told<'a> {
    /// The card, and how many of it.
    pub(crate) gpu: Option<&'a str>,
    /// What others hold on each.
    pub(crate) occupied: Option<Bytes>,
    /// What each process needs beside its pool.
    pub(crate) headroom: Option<Bytes>,
    /// Among how many processes they are divided: those that were started so are not "others".
    pub(crate) processes: Option<u32>,
}

/// The variable by which the processes of one division know each other.
pub(crate) const PROCESSES_VARIABLE: &str = "VRAMFIT_PROCESSES";

/// Returns the room on each card that a program started here will see; at least one.
///
/// A card that the user names goes before a virtual one, and that before those of the machine.
///
/// # Errors
/// `unknown-gpu`; `no-driver` and `invalid-argument` where no card can be seen.
pub(crate) fn rooms(
    told: &Told<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Room>> {
    let mut rooms = match told.gpu {
        Some(name) => {
            let cards = cards(name)?;
            vec![Room::of_gpu(&cards.gpu, 0, cards.count)]
        }
        None => match variable("VRAMFIT_GPU").filter(|name| !name.is_empty()) {
            Some(name) => virtual_rooms(&name, told.processes, variable)?,
            None => machine_rooms(told.processes, variable)?,
        },
    };
    for room in &mut rooms {
        if let Some(occupied) = told.occupied {
            room.held_bytes = occupied.0;
        }
        if let Some(headroom) = told.headroom {
            room.outside_bytes = headroom.0;
        }
    }
    Ok(rooms)
}

/// Returns the room on the virtual cards of the dry run we are in.
fn virtual_rooms(
    name: &str,
    processes: Option<u32>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Room>> {
    let gpu = gpu::find(name)?;
    let bytes = |name: &str| -> Option<u64> {
        let bytes: Bytes = variable(name)?.parse().ok()?;
        Some(bytes.0)
    };
    let gpu = match bytes("VRAMFIT_TOTAL") {
        Some(total) => gpu.with_total(total)?,
        None => gpu,
    };
    let count = bytes("VRAMFIT_GPU_COUNT").unwrap_or(1).max(1);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let list = variable("CUDA_VISIBLE_DEVICES");
    let context = bytes("VRAMFIT_CONTEXT").unwrap_or(gpu.context_bytes_estimate);
    let occupied = bytes("VRAMFIT_OCCUPIED").unwrap_or(0);
    let mut usage = usage(variable);
    let seen = usage.visible(count, list.as_deref());
    let Ok(seen_count @ 1..) = u32::try_from(seen.len()) else {
        let list = list.unwrap_or_default();
        let message = format!("the program will see no GPU: `CUDA_VISIBLE_DEVICES` is `{list}`");
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .hint(format!("name GPUs that are there: 0 to {}", count - 1)));
    };
    let held_by_others = |gpu| {
        let others = usage.holdings.iter().filter(|holding: &&Holding| {
            holding.gpu == gpu && !is_sibling(holding.process, processes)
        });
        others.map(|holding| holding.bytes).sum::<u64>()
    };
    let rooms = seen.into_iter().map(|number| Room {
        outside_bytes: outside_bytes(context, seen_count),
        ..Room::of_gpu(
            &gpu,
            occupied.saturating_add(held_by_others(number)),
            seen_count,
        )
    });
    Ok(rooms.collect())
}

/// Returns what the running processes hold of the virtual GPUs; nothing where those are not shared, or
/// nobody uses them yet.
fn usage(variable: impl Fn(&str) -> Option<String>) -> Usage {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let file = match (set("VRAMFIT_SHARED"), set("VRAMFIT_SHARED_FILE")) {
        (Some(name), _) => {
            let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
            let user = rustix::process::geteuid().as_raw();
            shared_gpus::file(runtime.as_deref(), &std::env::temp_dir(), user, &name)
        }
        (None, Some(path)) => PathBuf::from(path),
        (None, None) => return Usage::default(),
    };
    let mut usage = Usage::parse(&std::fs::read_to_string(file).unwrap_or_default());
    usage.holdings.retain(|holding| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", holding.process));
        stat.is_ok_and(|stat| published::started_ticks(&stat) == Some(holding.started))
    });
    usage
}

/// Returns the room on the cards of this machine.
fn machine_rooms(
    processes: Option<u32>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Room>> {
    const CURE: &str = "name the card, such as `--gpu a100-80g`; `vramfit gpus` lists them";
    let machine = vramfit_gpu::query_host().map_err(|error| {
        let message = format!("which card the program will see is not known: {error}");
        Error::new(error.kind(), message).hint(CURE)
    })?;
    let list = variable("CUDA_VISIBLE_DEVICES");
    let order = variable("CUDA_DEVICE_ORDER");
    let seen = settings::visible(&machine.gpus, list.as_deref(), order.as_deref());
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message).hint(CURE));
    let count = u32::try_from(seen.len()).unwrap_or(u32::MAX);
    match (count, list) {
        (0, Some(list)) => {
            return refuse(format!(
                "the program will see no card: `CUDA_VISIBLE_DEVICES` is `{list}`"
            ));
        }
        (0, None) => return refuse("the driver knows no card that a program can use".to_owned()),
        _ => {}
    }
    let mut rooms = Vec::new();
    for card in seen {
        let siblings = card
            .processes
            .iter()
            .filter(|process| is_sibling(process.pid, processes))
            .filter_map(|process| process.used_bytes)
            .sum();
        let Some(room) = Room::of_card(card, siblings, count) else {
            return refuse(format!(
                "the driver does not tell the memory of card {}",
                card.index
            ));
        };
        rooms.push(room);
    }
    Ok(rooms)
}

/// Says whether a process was started as one of so many that divide a card.
fn is_sibling(process: u32, processes: Option<u32>) -> bool {
    let Some(processes) = processes else {
        return false;
    };
    // The environment of somebody else's process cannot be read, and then it is somebody else's.
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let wanted = format!("{PROCESSES_VARIABLE}={processes}");
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_cards_may_follow_the_name() {
        assert_eq!(cards("h100-80g").expect("known").count, 1);
        let eight = cards("h100-80gx8").expect("known");
        assert_eq!((eight.gpu.name.as_str(), eight.count), ("h100-80g", 8));
    }

    #[test]
    fn bad_cards_are_told_apart_from_bad_numbers() {
        for text in ["h100-80gx0", "h100-80gx1025", "h100-80gx99999999999"] {
            assert_eq!(
                cards(text).unwrap_err().kind(),
                ErrorKind::InvalidArgument,
                "{text}"
            );
        }
        for text in ["h1000", "h1000x8", "x8", "", "h100-80gx"] {
            assert_eq!(
                cards(text).unwrap_err().kind(),
                ErrorKind::UnknownGpu,
                "{text}"
            );
        }
    }

    fn seen(told: &Told<'_>, environment: &[(&str, &str)]) -> Result<Vec<Room>> {
        rooms(told, |name| {
            let found = environment.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn a_named_card_goes_before_the_virtual_one() {
        let t4 = gpu::find("t4").expect("known");
        let inside = [("VRAMFIT_GPU", "t4"), ("VRAMFIT_OCCUPIED", "1073741824")];
        let room = seen(&Told::default(), &inside).expect("a virtual card")[0];
        assert_eq!(
            (room.total_bytes, room.held_bytes),
            (t4.total_memory_bytes, 1 << 30)
        );
        let told = Told {
            gpu: Some("h100-80g"),
            occupied: Some(Bytes(7)),
            headroom: Some(Bytes(9)),
            processes: None,
        };
        let room = seen(&told, &inside).expect("a named card")[0];
        assert_eq!((room.held_bytes, room.outside_bytes), (7, 9));
        assert!(room.total_bytes > t4.total_memory_bytes);
    }

    #[test]
    fn several_cards_need_room_for_what_they_exchange() {
        let one = seen(&Told::default(), &[("VRAMFIT_GPU", "t4")]).expect("one card")[0];
        let two = [("VRAMFIT_GPU", "t4"), ("VRAMFIT_GPU_COUNT", "2")];
        let two = seen(&Told::default(), &two).expect("two cards")[0];
        assert!(two.outside_bytes > one.outside_bytes);
    }

    #[test]
    fn processes_of_another_division_are_no_siblings() {
        // Nothing of ours is in the environment of the tests.
        let this = std::process::id();
        assert!(!is_sibling(this, None));
        assert!(!is_sibling(this, Some(1023)));
        assert!(!is_sibling(u32::MAX, Some(2)));
    }
}
