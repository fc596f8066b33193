//! Which cards of a machine `CUDA_VISIBLE_DEVICES` leaves to a program, as CUDA reads it.

use crate::host::{HostGpu, Mig};

/// Returns the cards that a program will see.
///
/// `list` is `CUDA_VISIBLE_DEVICES`, `order` is `CUDA_DEVICE_ORDER`. Numbers are CUDA's, which begins
/// with the fastest card unless it is told to go by the bus as the driver does; where cards differ and
/// it is not told so, a number could be any of them, and all are returned. Of the slices of divided
/// cards a program sees only one, and no whole card beside it.
pub fn visible<'a>(
    cards: &'a [HostGpu],
    list: Option<&str>,
    order: Option<&str>,
) -> Vec<&'a HostGpu> {
    let usable: Vec<&HostGpu> = cards.iter().filter(|card| card.is_usable()).collect();
    let seen = match list {
        None => usable,
        Some(list) => named(&usable, list, order == Some("PCI_BUS_ID")),
    };
    match seen.iter().find(|card| is_slice(card)) {
        Some(slice) => vec![*slice],
        None => seen,
    }
}

fn named<'a>(usable: &[&'a HostGpu], list: &str, by_bus: bool) -> Vec<&'a HostGpu> {
    let alike = usable.windows(2).all(|pair| pair[0].name == pair[1].name);
    let mut seen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let card = match entry.parse::<usize>() {
            Ok(number) if number < usable.len() && !alike && !by_bus => return usable.to_vec(),
            Ok(number) => usable.get(number),
            // The beginning of a name is enough, if it is one of a kind.
            Err(_) if entry.starts_with("GPU-") || entry.starts_with("MIG-") => {
                let mut found = usable.iter().filter(|card| card.uuid.starts_with(entry));
                found.next().filter(|_| found.next().is_none())
            }
            Err(_) => None,
        };
        // The list ends before the first entry that is no card.
        let Some(card) = card else { break };
        seen.push(*card);
    }
    seen
}

fn is_slice(card: &HostGpu) -> bool {
    matches!(card.mig, Mig::Slice { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(uuid: &str, name: &str) -> HostGpu {
        HostGpu {
            uuid: uuid.to_owned(),
            name: name.to_owned(),
            ..HostGpu::default()
        }
    }

    fn seen(cards: &[HostGpu], list: Option<&str>, order: Option<&str>) -> Vec<String> {
        let cards = visible(cards, list, order);
        cards.iter().map(|card| card.uuid.clone()).collect()
    }

    #[test]
    fn numbers_and_names_are_read_as_cuda_reads_them() {
        let cards = ["GPU-aa", "GPU-ab", "GPU-b"].map(|uuid| card(uuid, "T4"));
        for (list, uuids) in [
            (None, vec!["GPU-aa", "GPU-ab", "GPU-b"]),
            (Some(""), vec![]),
            (Some("-1"), vec![]),
            (Some("2,0"), vec!["GPU-b", "GPU-aa"]),
            (Some("1,9,0"), vec!["GPU-ab"]),
            (Some("GPU-b, GPU-aa"), vec!["GPU-b", "GPU-aa"]),
            (Some("GPU-a"), vec![]),
        ] {
            assert_eq!(seen(&cards, list, None), uuids, "{list:?}");
        }
    }

    #[test]
    fn a_number_among_different_cards_may_be_any_of_them() {
        let cards = [card("GPU-a", "T4"), card("GPU-b", "H100")];
        assert_eq!(seen(&cards, Some("0"), None).len(), 2);
        assert_eq!(seen(&cards, Some("0"), Some("PCI_BUS_ID")), ["GPU-a"]);
        assert_eq!(seen(&cards, Some("GPU-b"), None), ["GPU-b"]);
        assert!(seen(&cards, Some("7"), None).is_empty());
    }

    #[test]
    fn of_slices_one_is_seen_and_never_the_parent() {
        let slice = |uuid: &str| HostGpu {
            mig: Mig::Slice {
                number: 0,
                gpu_instance: None,
                parent_total_bytes: None,
            },
            ..card(uuid, "A100 MIG 1g.5gb")
        };
        let parent = HostGpu {
            mig: Mig::Parent,
            ..card("GPU-p", "A100")
        };
        let cards = [parent, slice("MIG-1"), slice("MIG-2")];
        assert_eq!(seen(&cards, None, None), ["MIG-1"]);
        assert_eq!(seen(&cards, Some("MIG-2,MIG-1"), None), ["MIG-2"]);
        assert!(seen(&cards, Some("GPU-p"), None).is_empty());
    }
}
