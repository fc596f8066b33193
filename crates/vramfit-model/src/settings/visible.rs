//! Which GPUs of a machine `CUDA_VISIBLE_DEVICES` leaves to a program, as CUDA reads it.

use crate::host::{HostGpu, Mig};

/// Returns the GPUs that a program will see.
///
/// `list` is `CUDA_VISIBLE_DEVICES`, `order` is `CUDA_DEVICE_ORDER`. Numbers are CUDA's, which begins
/// with the fastest GPU unless it is told to go by the bus as the driver does; where GPUs differ and
/// it is not told so, a number could be any of them, and all are returned. Of the slices of divided
/// GPUs a program sees only one, and no whole GPU beside it.
pub fn visible<'a>(
    gpus: &'a [HostGpu],
    list: Option<&str>,
    order: Option<&str>,
) -> Vec<&'a HostGpu> {
    let usable: Vec<&HostGpu> = gpus.iter().filter(|gpu| gpu.is_usable()).collect();
    let seen = match list {
        None => usable,
        Some(list) => named(&usable, list, order == Some("PCI_BUS_ID")),
    };
    match seen.iter().find(|gpu| is_slice(gpu)) {
        Some(slice) => vec![*slice],
        None => seen,
    }
}

fn named<'a>(usable: &[&'a HostGpu], list: &str, by_bus: bool) -> Vec<&'a HostGpu> {
    let alike = usable.windows(2).all(|pair| pair[0].name == pair[1].name);
    let mut seen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let gpu = match entry.parse::<usize>() {
            Ok(number) if number < usable.len() && !alike && !by_bus => return usable.to_vec(),
            Ok(number) => usable.get(number),
            // The beginning of a name is enough, if it is one of a kind.
            Err(_) if entry.starts_with("GPU-") || entry.starts_with("MIG-") => {
                let mut found = usable.iter().filter(|gpu| gpu.uuid.starts_with(entry));
                found.next().filter(|_| found.next().is_none())
            }
            Err(_) => None,
        };
        // The list ends before the first entry that is no GPU.
        let Some(gpu) = gpu else { break };
        seen.push(*gpu);
    }
    seen
}

fn is_slice(gpu: &HostGpu) -> bool {
    matches!(gpu.mig, Mig::Instance { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(uuid: &str, name: &str) -> HostGpu {
        HostGpu { uuid: uuid.to_owned(), name: name.to_owned(), ..HostGpu::default() }
    }

    fn seen(gpus: &[HostGpu], list: Option<&str>, order: Option<&str>) -> Vec<String> {
        let gpus = visible(gpus, list, order);
        gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
    }

    #[test]
    fn numbers_and_names_are_read_as_cuda_reads_them() {
        let gpus = ["GPU-aa", "GPU-ab", "GPU-b"].map(|uuid| gpu(uuid, "T4"));
        for (list, uuids) in [
            (None, vec!["GPU-aa", "GPU-ab", "GPU-b"]),
            (Some(""), vec![]),
            (Some("-1"), vec![]),
            (Some("2,0"), vec!["GPU-b", "GPU-aa"]),
            (Some("1,9,0"), vec!["GPU-ab"]),
            (Some("GPU-b, GPU-aa"), vec!["GPU-b", "GPU-aa"]),
            (Some("GPU-a"), vec![]),
        ] {
            assert_eq!(seen(&gpus, list, None), uuids, "{list:?}");
        }
    }

    #[test]
    fn a_number_among_different_gpus_may_be_any_of_them() {
        let gpus = [gpu("GPU-a", "T4"), gpu("GPU-b", "H100")];
        assert_eq!(seen(&gpus, Some("0"), None).len(), 2);
        assert_eq!(seen(&gpus, Some("0"), Some("PCI_BUS_ID")), ["GPU-a"]);
        assert_eq!(seen(&gpus, Some("GPU-b"), None), ["GPU-b"]);
        assert!(seen(&gpus, Some("7"), None).is_empty());
    }

    #[test]
    fn of_slices_one_is_seen_and_never_the_parent() {
        let slice = |uuid: &str| HostGpu {
            mig: Mig::Instance { number: 0, gpu_instance: None, parent_total_bytes: None },
            ..gpu(uuid, "A100 MIG 1g.5gb")
        };
        let parent = HostGpu { mig: Mig::Parent, ..gpu("GPU-p", "A100") };
        let gpus = [parent, slice("MIG-1"), slice("MIG-2")];
        assert_eq!(seen(&gpus, None, None), ["MIG-1"]);
        assert_eq!(seen(&gpus, Some("MIG-2,MIG-1"), None), ["MIG-2"]);
        assert!(seen(&gpus, Some("GPU-p"), None).is_empty());
    }
}
