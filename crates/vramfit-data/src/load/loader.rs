//! The loader: what a consumer sees of all this.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::buffer::{Lease, Stock};
use super::checks::{must_fill_one, must_go_on};
use super::columns::{Column, Columns};
use super::course::{Course, OPEN_ROOMS};
use super::desk::Desk;
use super::plan::Plan;
use super::reader::Reader;
use super::request::{Request, Set};
use super::room::Rooms;
use super::slab::Slab;
use super::stats::Stats;
use super::unit::Cut;
use crate::order::{self, Engine, Order, Part, Split, State};
use crate::source::MAX_SAMPLED_BYTES;

/// More than this is not read in one piece of work by the consumer's thread.
const HELPED_BYTES: u64 = 4 << 20;

/// A batch, or several stacked.
#[derive(Debug)]
pub struct Filled {
    /// The rows of each column, one after the other, repeated rows last.
    pub columns: Vec<Lease>,
    /// How many rows of each batch in it are real.
    pub valid: Vec<u64>,
}

/// What came of waiting.
#[derive(Debug)]
pub enum Turn {
    /// The next batch.
    Batch(Filled),
    /// None was ready in time.
    Waiting {
        /// Whether none will be, before the consumer drops one: it has all that the budget has room for.
        starved: bool,
    },
    /// The epoch is over.
    End,
}

/// Reads batches ahead of a consumer.
#[derive(Debug)]
pub struct Loader {
    desk: Arc<Desk>,
    columns: Arc<Columns>,
    request: Request,
    order: Order,
    plan: Plan,
    /// Where the next batch is.
    epoch: u64,
    position: u64,
    threads: Vec<JoinHandle<()>>,
    /// What the consumer's thread works with while it waits.
    helper: Option<Reader>,
    /// Memory of the pools of the epoch before.
    spare: Vec<Slab>,
}

impl Loader {
    /// Opens a file. Nothing is read of its data, and no thread is started.
    ///
    /// # Errors
    /// `invalid-argument` when the request cannot be met, all that opening a file can fail with.
    pub fn open(request: Request) -> Result<Loader> {
        let columns = Columns::open(&request)?;
        let rows = columns.len();
        let part = match request.part {
            None => Part::All,
            Some(part) => {
                let split = Split::new(rows, part.share, part.manner, part.seed)?;
                match part.set {
                    Set::Train => Part::Train(split),
                    Set::Validation => Part::Validation(split),
                }
            }
        };
        let order = |engine| Order::new(rows, request.seed, engine, part);
        // Before the memory: a batch that the rows do not fill needs no other budget.
        must_fill_one(&request, order(Engine::Sequential)?.len())?;
        let plan = Plan::new(&request, &columns)?;
        let order = order(plan.choice.engine)?;
        let lengths = columns.lengths(&request);
        let stock = Stock::new(lengths, plan.sets, plan.max_sets, request.poison);
        Ok(Loader {
            desk: Arc::new(Desk::new(stock)),
            columns: Arc::new(columns),
            request,
            order,
            plan,
            epoch: 0,
            position: 0,
            threads: Vec::new(),
            helper: None,
            spare: Vec::new(),
        })
    }

    /// Returns the plan that was made.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the datasets, in the order of the request.
    pub fn columns(&self) -> &[Column] {
        &self.columns.columns
    }

    /// Returns what was asked for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns how many rows an epoch has, all processes together.
    pub fn rows(&self) -> u64 {
        self.order.len()
    }

    /// Returns how many batches (or stacks of them) an epoch has.
    ///
    /// # Errors
    /// None that opening did not have.
    pub fn batches(&self) -> Result<u64> {
        Ok(self.cut(0)?.count())
    }

    /// Returns the rows of the file that an epoch has at positions; those behind its end are left out.
    pub fn file_rows(&self, epoch: u64, positions: Range<u64>) -> Vec<u64> {
        let end = positions.end.min(self.order.len());
        let mut rows = Vec::new();
        if positions.start < end {
            self.order
                .epoch(epoch)
                .append_rows(positions.start..end, &mut rows);
        }
        rows
    }

    /// Returns the epoch and the position of the next row, all processes together.
    pub fn position(&self) -> (u64, u64) {
        (self.epoch, self.position)
    }

    /// Returns the statistics.
    ///
    /// # Errors
    /// `invalid-argument` in a forked copy of the process.
    pub fn stats(&self) -> Result<Stats> {
        self.must_be_here()?;
        let state = self.desk.lock();
        let mut stats = state.stats;
        (stats.buffer_bytes, stats.held_bytes) = state.stock.bytes();
        Ok(stats)
    }

    /// Begins an epoch at a position, or goes on from there. What went on before is stopped.
    ///
    /// # Errors
    /// `file-changed`; `invalid-argument` in a forked copy of the process; `io` when the system gives no
    /// threads.
    pub fn start(&mut self, epoch: u64, position: u64) -> Result<()> {
        self.must_be_here()?;
        self.stop();
        self.columns.must_be_unchanged()?;
        let cut = self.cut(position)?;
        (self.epoch, self.position) = (epoch, position);
        let order = self.order.epoch(epoch);
        let rooms = match (self.order.engine(), self.plan.in_order) {
            (Engine::BlockPool(pools) | Engine::ChunkPool(pools), _) => {
                let row_bytes = self.columns.row_bytes();
                Some(Rooms::of_pools(order.clone(), pools, row_bytes))
            }
            (_, Some((blocks, rows))) => Some(Rooms::in_order(order.clone(), blocks, rows)),
            (_, None) => None,
        };
        // Work that takes long would keep the consumer from a batch that is ready.
        let is_short = match &rooms {
            Some(rooms) => rooms.task_bytes(self.columns.row_bytes()) <= HELPED_BYTES,
            None => self.plan.batch_bytes <= HELPED_BYTES,
        };
        let mut spare = std::mem::take(&mut self.spare);
        if let Some(rooms) = &rooms
            && spare.is_empty()
        {
            spare = rooms.memory(OPEN_ROOMS as u64, &self.columns)?;
        }
        let rooms = rooms.map(Arc::new);
        self.desk.lock().course = Some(Course::new(cut, rooms.clone(), spare));
        let reader = Reader {
            desk: Arc::clone(&self.desk),
            columns: Arc::clone(&self.columns),
            epoch: Arc::new(order),
            rooms,
        };
        self.helper = (self.plan.helps && is_short).then(|| reader.clone());
        for number in 0..self.plan.threads {
            let reader = reader.clone();
            let thread = std::thread::Builder::new().name(format!("vramfit-read-{number}"));
            match thread.spawn(move || reader.run()) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    self.stop();
                    let what = "the system gave no thread to read with";
                    return Err(Error::new(ErrorKind::Io, what).cause(error));
                }
            }
        }
        Ok(())
    }

    /// Waits for the next batch, or helps to make it, but no longer than `limit`, and no longer than `patience` while the consumer
    /// has all memory for batches: it may have to do something before any comes back.
    ///
    /// # Errors
    /// What a reader thread failed with; `invalid-argument` in a forked copy of the process.
    pub fn wait(&mut self, limit: Duration, patience: Duration) -> Result<Turn> {
        self.must_be_here()?;
        let begin = Instant::now();
        let mut state = self.desk.lock();
        loop {
            let now = &mut *state;
            let Some(course) = &mut now.course else {
                return Ok(Turn::End);
            };
            if let Some(open) = course.take_ready() {
                self.position = open.unit.end;
                if course.is_over() {
                    (self.epoch, self.position) = (self.epoch + 1, 0);
                }
                let filled = Filled {
                    columns: open.leases,
                    valid: open.unit.valid,
                };
                now.stats.batches += 1;
                now.stats.rows += filled.valid.iter().sum::<u64>();
                let bytes = filled.columns.iter().map(|c| c.bytes().len() as u64);
                now.stats.bytes += bytes.sum::<u64>();
                now.stats.waiting += begin.elapsed();
                self.desk.wake_readers(now);
                return Ok(Turn::Batch(filled));
            }
            if let Some(error) = course.failure() {
                return Err(error.clone());
            }
            if course.is_over() {
                if self.position > 0 {
                    // What was left of the epoch fills no batch.
                    (self.epoch, self.position) = (self.epoch + 1, 0);
                }
                drop(state);
                self.stop();
                return Ok(Turn::End);
            }
            let elapsed = begin.elapsed();
            let mut starved = course.is_starved(&now.stock);
            if starved && now.stock.grow() {
                // The consumer keeps what it got: the rest of the budget is for that.
                self.desk.wake_readers(now);
                starved = false;
            }
            let limit = if starved { limit.min(patience) } else { limit };
            if elapsed >= limit {
                now.stats.waiting += elapsed;
                return Ok(Turn::Waiting { starved });
            }
            if let Some(helper) = &self.helper {
                let helped;
                (state, helped) = helper.help(state);
                if helped {
                    continue;
                }
            }
            state = self.desk.wait_for_batch(state, limit - elapsed);
        }
    }

    /// Returns a budget with which a program can keep all batches of an epoch.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn budget_to_keep_all(&self) -> Result<Bytes> {
        let rows = self.columns.len();
        let bytes = rows.saturating_mul(self.columns.row_bytes());
        Ok(self.plan.budget_to_keep(self.batches()?, bytes))
    }

    /// Stops reading and waits for the threads. Batches that were handed out stay as they are.
    pub fn stop(&mut self) {
        if !self.desk.is_here() {
            // The threads of a forked copy are elsewhere; there is nobody to wait for.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.helper = None;
        if let Some(course) = &mut self.desk.lock().course {
            course.stop();
        }
        self.desk.wake_all();
        for thread in self.threads.drain(..) {
            // It catches its own panics.
            let _ = thread.join();
        }
        // Dropped without the lock, which the memory of its batches needs on its way back.
        let course = self.desk.lock().course.take();
        if let Some(course) = course {
            self.spare = course.into_spare();
        }
    }

    /// Returns what has to be kept to go on behind the last batch that was handed out.
    pub fn state(&self) -> State {
        self.state_at(self.epoch, self.position)
    }

    /// Returns what has to be kept to go on from a position of an epoch.
    pub fn state_at(&self, epoch: u64, position: u64) -> State {
        let file = order::Fingerprint {
            contents: self.columns.contents(),
            ..self.columns.fingerprint()
        };
        State::new(self.order, epoch, position, file)
    }

    /// Goes on from a state: the next [`start`](Self::start) is the caller's.
    ///
    /// Returns what is worth a word: what differs in the file, where `force` makes no error of it, or that only
    /// parts of a large file were compared.
    ///
    /// # Errors
    /// `file-changed`; `invalid-argument` when the state is of another seed or part of the rows, or its pools
    /// do not fit into the budget.
    pub fn restore(&mut self, state: &State, force: bool) -> Result<Option<String>> {
        self.must_be_here()?;
        let (path, file) = (self.columns.path(), self.columns.fingerprint());
        let note = match state.must_be_of(&path, &file, || self.columns.contents()) {
            Err(error) if force => Some(error.message().to_owned()),
            Err(error) => return Err(error),
            Ok(()) if state.file.modified_ns == file.modified_ns || !self.columns.is_sampled() => {
                None
            }
            Ok(()) => Some(format!(
                "`{path}` was copied or written to since; its structure and the {} of it that were compared are the same",
                Bytes(MAX_SAMPLED_BYTES)
            )),
        };
        let theirs = state.order;
        must_go_on(theirs, self.order)?;
        let plan = self.plan.with_engine(theirs.engine(), &self.columns)?;
        self.stop();
        self.desk.lock().stock.set_most(plan.sets, plan.max_sets);
        if plan.choice.engine != self.plan.choice.engine {
            // Of another size.
            self.spare = Vec::new();
        }
        self.plan = plan;
        self.order = theirs;
        (self.epoch, self.position) = (state.epoch, state.position);
        Ok(note)
    }

    fn cut(&self, start: u64) -> Result<Cut> {
        Cut::of(&self.request, self.order.len(), start)
    }

    fn must_be_here(&self) -> Result<()> {
        if self.desk.is_here() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "this loader was made by another process, and its reader threads are not in a forked copy",
        )
        .hint("make the loader in the process that uses it; start processes with `spawn`"))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop();
    }
}
