//! A reader thread: takes work, does it without the lock, and tells. The consumer's own thread does the same
//! instead of sleeping, where the plan says so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use vramfit_core::{Error, ErrorKind, Result};

use super::buffer::Lease;
use super::columns::Columns;
use super::course::{Job, Next, Open};
use super::desk::{Desk, Now};
use super::room::{Room, Rooms, read_or_gather};
use crate::order::Epoch;

/// What a thread works with.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) desk: Arc<Desk>,
    pub(super) columns: Arc<Columns>,
    pub(super) epoch: Arc<Epoch>,
    pub(super) rooms: Option<Arc<Rooms>>,
}

/// What came of a piece of work.
enum Done {
    Loaded(usize),
    Filled(Vec<Open>, Option<usize>),
}

impl Reader {
    /// Works until nothing is left to be done.
    pub(super) fn run(&self) {
        give_way();
        let mut state = self.desk.lock();
        loop {
            let next = self.next(&mut state);
            if !matches!(next, Next::Do(Job::Fill { .. })) {
                self.desk.hand_over(&state);
            }
            match next {
                Next::Leave => return,
                Next::Wait => {
                    let begin = Instant::now();
                    state = self.desk.wait_for_work(state);
                    state.stats.idle += begin.elapsed();
                }
                Next::Do(job) => state = self.carry_out(job, state),
            }
        }
    }

    /// Does one piece of work in place of a thread, and says whether there was any.
    pub(super) fn help<'a>(
        &'a self,
        mut state: MutexGuard<'a, Now>,
    ) -> (MutexGuard<'a, Now>, bool) {
        match self.next(&mut state) {
            Next::Do(job) => (self.carry_out(job, state), true),
            Next::Wait | Next::Leave => (state, false),
        }
    }

    /// Finds something to do.
    fn next(&self, state: &mut Now) -> Next {
        let Some(course) = &mut state.course else {
            return Next::Leave;
        };
        match course.next(&mut state.stock, &self.desk) {
            Ok(next) => next,
            Err(error) => {
                course.refuse(error);
                Next::Leave
            }
        }
    }

    /// Does a piece of work without the lock, and tells.
    fn carry_out<'a>(&'a self, job: Job, state: MutexGuard<'a, Now>) -> MutexGuard<'a, Now> {
        drop(state);
        let begin = Instant::now();
        let is_copy = matches!(job, Job::Fill { room: Some(_), .. });
        // A thread that dies in silence would leave the consumer waiting for ever.
        let done = catch_unwind(AssertUnwindSafe(|| self.work(job))).unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Internal,
                "a reader thread of the loader panicked",
            ))
        });
        let took = begin.elapsed();
        let mut state = self.desk.lock();
        match is_copy {
            true => state.stats.filling += took,
            false => state.stats.reading += took,
        }
        if let Some(course) = &mut state.course {
            match done {
                Ok(Done::Loaded(room)) => course.loaded(room),
                Ok(Done::Filled(open, room)) => course.filled(open, room),
                Err(error) => course.fail(error),
            }
        }
        self.desk.tell(&state);
        state
    }

    fn work(&self, job: Job) -> Result<Done> {
        match job {
            Job::Load {
                room,
                index,
                task,
                memory,
            } => {
                let Some(rooms) = &self.rooms else {
                    return Ok(Done::Loaded(index));
                };
                self.checked(room.load(task, rooms, &self.columns, memory))?;
                Ok(Done::Loaded(index))
            }
            Job::Fill {
                open: mut several,
                room: Some((index, room)),
            } => {
                for open in &mut several {
                    self.copy(open, &room);
                }
                Ok(Done::Filled(several, Some(index)))
            }
            Job::Fill {
                open: mut several,
                room: None,
            } => {
                let read = several.iter_mut().try_for_each(|open| self.read(open));
                self.checked(read)?;
                Ok(Done::Filled(several, None))
            }
        }
    }

    /// Takes the rows that a room has for a batch.
    fn copy(&self, open: &mut Open, room: &Room) {
        let here = room.positions();
        let positions = &open.unit.positions;
        let from = positions.partition_point(|at| *at < here.start);
        let to = positions.partition_point(|at| *at < here.end);
        let lengths = self.columns.columns.iter().map(|c| c.rows().row_bytes());
        let out = open.leases.iter_mut().map(Lease::bytes_mut).zip(lengths);
        let out = out.map(|(bytes, length)| &mut bytes[from * length..to * length]);
        room.copy(&positions[from..to], &self.columns, out);
        open.visited = here.end.min(open.unit.end);
    }

    /// Reads the rows of a batch from where they lie.
    fn read(&self, open: &mut Open) -> Result<()> {
        let mut rows = Vec::with_capacity(open.unit.positions.len());
        for run in open.unit.positions.chunk_by(|one, next| one + 1 == *next) {
            self.epoch
                .append_rows(run[0]..run[0] + run.len() as u64, &mut rows);
        }
        for (column, lease) in self.columns.columns.iter().zip(&mut open.leases) {
            read_or_gather(column.rows(), &rows, lease.bytes_mut())?;
        }
        open.visited = open.unit.end;
        Ok(())
    }

    /// Trusts what was read only if the file is still the same afterwards; if it is not, that is the error,
    /// whatever else went wrong.
    fn checked(&self, read: Result<()>) -> Result<()> {
        self.columns.must_be_unchanged()?;
        read
    }
}

/// Has this thread wait for its turn where others compute, as `sched(7)` says of `SCHED_BATCH`; its share of the
/// processors stays the same.
///
/// Otherwise a thread that is woken takes the processor from the one that wakes it, which is the program's own: it
/// stood still for 300 µs at a time, to have batches made that it did not need yet.
fn give_way() {
    #[allow(unsafe_code, reason = "nothing safe sets how a thread is scheduled")]
    // SAFETY: the structure is plain numbers, it lives during the call, and 0 is this thread. A system that
    // refuses leaves everything as it was.
    unsafe {
        // Whoever runs a program in another way has said so.
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            let param: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use vramfit_core::Bytes;

    use super::*;
    use crate::load::Request;
    use crate::load::buffer::Stock;
    use crate::load::course::Course;
    use crate::load::unit::Cut;
    use crate::order::{Engine, Last, Order, Part, Pools, World};
    use crate::write::{self, Compression, Content, Dataset, Job, Manner, Number, Storage};

    const ROWS: u64 = 100;

    /// Writes a file whose rows are their numbers.
    fn make(path: &Path) {
        let chunks = Storage::Chunked {
            rows: 10,
            compression: Compression::Gzip(1),
        };
        let job = Job {
            path,
            content: Content {
                datasets: vec![Dataset::new("x", Number::U64, vec![ROWS], chunks)],
                ..Content::default()
            },
            purpose: "a test",
            manner: Manner::default(),
            threads: 1,
            expected: Bytes(0),
        };
        let rows = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
            rows.for_each(|row| out[0].extend(row.to_le_bytes()));
            Ok(())
        };
        write::write(job, &rows, &mut |_| {}).unwrap();
    }

    #[test]
    fn helping_alone_makes_every_batch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.h5");
        make(&path);
        let columns = Columns::open(&Request::of(path, ["x"]));
        let pools = Pools {
            block_rows: 10,
            pool_blocks: 4,
        };
        let order = Order::new(ROWS, 1, Engine::ChunkPool(pools), Part::All).unwrap();
        let epoch = order.epoch(0);
        let mut expected = Vec::new();
        epoch.append_rows(0..96, &mut expected);
        let rooms = Arc::new(Rooms::of_pools(epoch.clone(), pools, 8));
        let cut = Cut::new(ROWS, 8, 1, Last::Drop, World::ALONE, 0).unwrap();
        let desk = Arc::new(Desk::new(Stock::new(vec![64], 3, 3, false)));
        let course = Course::new(cut, Some(Arc::clone(&rooms)), Vec::new());
        desk.lock().course = Some(course);
        let reader = Reader {
            desk: Arc::clone(&desk),
            columns: Arc::new(columns.unwrap()),
            epoch: Arc::new(epoch),
            rooms: Some(rooms),
        };
        let mut seen: Vec<u64> = Vec::new();
        loop {
            let (mut state, helped) = reader.help(desk.lock());
            let ready = state.course.as_mut().and_then(Course::take_ready);
            // The lock is needed on the way back of what it was made of.
            drop(state);
            if let Some(open) = &ready {
                let (numbers, _) = open.leases[0].bytes().as_chunks();
                seen.extend(numbers.iter().map(|number| u64::from_le_bytes(*number)));
            }
            if !helped && ready.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
}
