//! What each process holds of the GPUs of a virtual machine that several processes share: a text file.
//!
//! The first line names the GPUs: kind, number of them, bytes of each. Then come `uuid NAME` for each UUID that
//! a process was told to use, and a line for each process and GPU. The virtual GPU keeps the file
//! (`vramfit-vgpu`); a process that divides such a GPU reads it.

use std::path::{Path, PathBuf};

/// What the processes hold of the GPUs of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedGpuUsage {
    /// The first line: kind of the GPUs, number of them, bytes of each. Empty in a new file.
    pub machine: String,
    /// UUIDs in the order in which they were first used. The GPUs are alike, so it does not matter which
    /// of them a UUID names, only that it names the same one in every process.
    pub uuids: Vec<String>,
    /// A line for each process and GPU.
    pub holdings: Vec<Holding>,
}

/// What one process holds of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Number of the process.
    pub process: u32,
    /// Its start in clock ticks since the system's, because process numbers are used again.
    pub started: u64,
    /// Number of the GPU in the machine.
    pub gpu: u32,
    /// What it holds, its CUDA context included.
    pub bytes: u64,
    /// The most that all other processes held of this GPU at once while this one was there.
    pub max_others_bytes: u64,
}

impl SharedGpuUsage {
    /// Reads the text of a file. Lines that are not understood are passed over.
    pub fn parse(text: &str) -> SharedGpuUsage {
        let mut lines = text.lines();
        let machine = lines.next().unwrap_or_default().to_owned();
        let mut usage = SharedGpuUsage { machine, ..SharedGpuUsage::default() };
        for line in lines {
            match line.strip_prefix("uuid ") {
                Some(uuid) => usage.uuids.push(uuid.to_owned()),
                None => usage.holdings.extend(Holding::parse(line)),
            }
        }
        usage
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.machine);
        for uuid in &self.uuids {
            text += &format!("uuid {uuid}\n");
        }
        for holding in &self.holdings {
            text += &holding.line();
        }
        text
    }

    /// Returns what all processes but one hold of a GPU.
    pub fn used_by_others(&self, process: u32, gpu: u32) -> u64 {
        self.others(process, gpu).map(|other| other.bytes).sum()
    }

    /// Returns the holdings of all processes but one on a GPU.
    pub fn others(&self, process: u32, gpu: u32) -> impl Iterator<Item = &Holding> {
        let holdings = self.holdings.iter();
        holdings.filter(move |holding| holding.gpu == gpu && holding.process != process)
    }

    /// Returns a process's holding of a GPU.
    pub fn of(&self, process: u32, gpu: u32) -> Option<&Holding> {
        let mut holdings = self.holdings.iter();
        holdings.find(|holding| holding.gpu == gpu && holding.process == process)
    }

    /// Sets what a process holds of a GPU, and with it the most that others have seen.
    pub fn set(&mut self, process: u32, started: u64, gpu: u32, bytes: u64) {
        let place = |holding: &Holding| holding.gpu == gpu && holding.process == process;
        match self.holdings.iter().position(place) {
            Some(at) => self.holdings[at].bytes = bytes,
            None => {
                self.holdings.push(Holding { process, started, gpu, bytes, max_others_bytes: 0 });
            }
        }
        let on_gpu = |holding: &&Holding| holding.gpu == gpu;
        let bytes_of_all = self.holdings.iter().filter(on_gpu);
        let total: u64 = bytes_of_all.map(|holding| holding.bytes).sum();
        for holding in self.holdings.iter_mut().filter(|one| one.gpu == gpu) {
            let others = total - holding.bytes;
            holding.max_others_bytes = holding.max_others_bytes.max(others);
        }
    }

    /// Returns the numbers of the GPUs that `CUDA_VISIBLE_DEVICES` leaves of `count`, in its order.
    ///
    /// As the driver reads it, the list ends before the first entry that is no GPU. A GPU that is named
    /// twice is seen once. The first UUID that is used names GPU 0, the next one GPU 1, and so on; the
    /// beginning of a UUID stands for it.
    pub fn visible_gpus(&mut self, count: u32, list: Option<&str>) -> Vec<u32> {
        let Some(list) = list else {
            return (0..count).collect();
        };
        let mut seen = Vec::new();
        for entry in list.split(',').map(str::trim) {
            let number = match is_uuid(entry) {
                true => self.gpu_of_uuid(count, entry),
                false => entry.parse().ok().filter(|number| *number < count),
            };
            match number {
                None => break,
                Some(number) if seen.contains(&number) => {}
                Some(number) => seen.push(number),
            }
        }
        seen
    }

    fn gpu_of_uuid(&mut self, count: u32, uuid: &str) -> Option<u32> {
        let same = |known: &String| known.starts_with(uuid) || uuid.starts_with(known.as_str());
        let at = match self.uuids.iter().position(same) {
            Some(at) => at,
            None if self.uuids.len() < count as usize => {
                self.uuids.push(uuid.to_owned());
                self.uuids.len() - 1
            }
            None => return None,
        };
        u32::try_from(at).ok()
    }
}

/// Returns `true` if `CUDA_VISIBLE_DEVICES` names GPUs by their UUIDs.
pub fn has_uuids(list: &str) -> bool {
    list.split(',').map(str::trim).any(is_uuid)
}

fn is_uuid(entry: &str) -> bool {
    let begins = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    begins && !entry.contains(char::is_whitespace)
}

impl Holding {
    /// Reads a line; `None` for what is none.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        Some(Holding {
            process: u32::try_from(next()?).ok()?,
            started: next()?,
            gpu: u32::try_from(next()?).ok()?,
            bytes: next()?,
            max_others_bytes: next()?,
        })
    }

    /// Writes it as a line.
    pub fn line(&self) -> String {
        format!(
            "{} {} {} {} {}\n",
            self.process, self.started, self.gpu, self.bytes, self.max_others_bytes
        )
    }
}

/// Returns the file of GPUs that are shared by name: in the user's own runtime directory where there is
/// one, else in a folder of theirs among the temporary files.
pub fn file(runtime: Option<&Path>, temporary: &Path, user: u32, name: &str) -> PathBuf {
    folder(runtime, temporary, user).join(name)
}

/// Returns the folder of all GPUs that are shared by name.
pub fn folder(runtime: Option<&Path>, temporary: &Path, user: u32) -> PathBuf {
    match runtime {
        Some(directory) => directory.join("vramfit"),
        None => temporary.join(format!("vramfit-{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_survives_being_written_and_read() {
        let mut usage =
            SharedGpuUsage { machine: "t4 2 15642329088".to_owned(), ..SharedGpuUsage::default() };
        assert_eq!(usage.visible_gpus(2, Some("GPU-5c7e")), [0]);
        usage.set(7, 12_345, 1, 1 << 40);
        assert_eq!(SharedGpuUsage::parse(&usage.to_text()), usage);
        assert_eq!(SharedGpuUsage::parse(""), SharedGpuUsage::default());
        assert_eq!(Holding::parse("nonsense"), None);
    }

    #[test]
    fn each_process_knows_the_most_that_others_held() {
        let mut usage = SharedGpuUsage::default();
        usage.set(1, 10, 0, 600);
        usage.set(2, 20, 0, 100);
        usage.set(3, 30, 1, 900);
        usage.set(2, 20, 0, 300);
        usage.set(2, 20, 0, 50);
        usage.set(1, 10, 0, 500);
        let most = |process| usage.of(process, 0).expect("it is there").max_others_bytes;
        assert_eq!((most(1), most(2)), (300, 600));
        assert_eq!(usage.used_by_others(1, 0), 50);
        assert_eq!(usage.used_by_others(9, 1), 900);
    }

    #[test]
    fn visible_gpus_are_those_of_the_machine_as_the_driver_reads_the_list() {
        let seen = |list| SharedGpuUsage::default().visible_gpus(4, list);
        for (list, numbers) in [
            (None, vec![0, 1, 2, 3]),
            (Some("0,2"), vec![0, 2]),
            (Some("3, 1"), vec![3, 1]),
            (Some("0,9,1"), vec![0]),
            (Some("0,2,-1,1"), vec![0, 2]),
            (Some("1,1"), vec![1]),
            (Some("-1"), vec![]),
            (Some(""), vec![]),
            (Some("all"), vec![]),
            (Some("GPU-b,GPU-a"), vec![0, 1]),
        ] {
            assert_eq!(seen(list), numbers, "{list:?}");
        }
    }

    #[test]
    fn a_uuid_names_the_same_gpu_in_every_process() {
        let mut usage = SharedGpuUsage::default();
        assert_eq!(usage.visible_gpus(2, Some("GPU-5c7e-11")), [0]);
        assert_eq!(usage.visible_gpus(2, Some("GPU-99")), [1]);
        assert_eq!(usage.visible_gpus(2, Some("GPU-5c")), [0]);
        assert_eq!(usage.visible_gpus(2, Some("GPU-99,GPU-5c7e-11")), [1, 0]);
        assert!(usage.visible_gpus(2, Some("GPU-77")).is_empty(), "there are two");
        assert!(has_uuids("0, GPU-77") && !has_uuids("0,1"));
    }
}
