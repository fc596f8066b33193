//! What is to be done next in an epoch: the only place that decides, under one lock.
//!
//! Memory for batches is given out in the order of batches, so the first that is missing always has
//! some, and waiting never becomes a circle. At most two rooms are open: one whose rows are handed out
//! and one that is read meanwhile. A room is closed when every batch that has rows in it has them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use vramfit_core::{Error, Result};

use super::buffer::{Lease, Stock};
use super::desk::Desk;
use super::room::{Room, Rooms};
use super::slab::Slab;
use super::unit::{Cut, Unit};

/// Rooms that are open at a time.
pub(super) const OPEN_ROOMS: usize = 2;

/// A batch that is being made.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) unit: Unit,
    pub(super) leases: Vec<Lease>,
    /// The position of the epoch before which it has all that is its own.
    pub(super) visited: u64,
}

/// A piece of work for a reader thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Read a block of a room.
    Load {
        room: Arc<Room>,
        index: usize,
        task: usize,
        /// Memory that was used before.
        memory: Option<Slab>,
    },
    /// Make batches, or take the rows that a room has for them. There is more than one only of small ones.
    Fill {
        open: Vec<Open>,
        room: Option<(usize, Arc<Room>)>,
    },
}

/// What to do now.
#[derive(Debug)]
pub(super) enum Next {
    Do(Job),
    /// Nothing can be done before something changes.
    Wait,
    /// Nothing is left to be done.
    Leave,
}

/// An epoch on its way.
#[derive(Debug)]
pub(super) struct Course {
    cut: Cut,
    rooms: Option<Arc<Rooms>>,
    active: VecDeque<Active>,
    next_room: usize,
    end_room: usize,
    /// The next batch to be begun.
    next: u64,
    /// Batches that wait for another room.
    open: BTreeMap<u64, Open>,
    ready: BTreeMap<u64, Open>,
    made: u64,
    next_out: u64,
    busy: usize,
    failure: Option<Error>,
    stopped: bool,
    /// Memory that no room has.
    spare: Vec<Slab>,
}

#[derive(Debug)]
struct Active {
    index: usize,
    room: Arc<Room>,
    given_out: usize,
    loaded: usize,
    /// Batches that have not yet been here.
    visits: u64,
}

impl Course {
    /// Begins an epoch, with memory for pools.
    pub(super) fn new(cut: Cut, rooms: Option<Arc<Rooms>>, spare: Vec<Slab>) -> Course {
        let all = cut.all();
        let (next_room, end_room) = match &rooms {
            Some(rooms) if cut.count() > 0 => (rooms.at(all.start), rooms.at(all.end - 1) + 1),
            _ => (0, 0),
        };
        Course {
            cut,
            rooms,
            active: VecDeque::new(),
            next_room,
            end_room,
            next: 0,
            open: BTreeMap::new(),
            ready: BTreeMap::new(),
            made: 0,
            next_out: 0,
            busy: 0,
            failure: None,
            stopped: false,
            spare,
        }
    }

    /// Returns the memory of pools, for the next epoch.
    pub(super) fn into_spare(self) -> Vec<Slab> {
        let rooms = self.active.into_iter();
        let rooms = rooms.filter_map(|active| Arc::into_inner(active.room));
        let slabs = rooms.flat_map(Room::into_memory);
        self.spare.into_iter().chain(slabs).collect()
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Ends the epoch with an error; the first one counts.
    pub(super) fn fail(&mut self, error: Error) {
        self.busy -= 1;
        self.failure.get_or_insert(error);
    }

    /// Ends the epoch with an error that no piece of work had.
    pub(super) fn refuse(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Returns the error that ended the epoch.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Returns the next batch in order, when it is ready.
    pub(super) fn take_ready(&mut self) -> Option<Open> {
        let open = self.ready.remove(&self.next_out)?;
        self.next_out += 1;
        Some(open)
    }

    /// Returns how many batches wait for the consumer.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether a consumer that waits has something to hear.
    pub(super) fn is_of_interest(&self, stock: &Stock) -> bool {
        self.ready.contains_key(&self.next_out) || self.failure.is_some() || self.is_starved(stock)
    }

    /// Whether every batch was handed out.
    pub(super) fn is_over(&self) -> bool {
        self.next_out == self.cut.count()
    }

    /// Whether nothing goes on because the consumer has all memory for batches.
    pub(super) fn is_starved(&self, stock: &Stock) -> bool {
        self.busy == 0 && self.ready.is_empty() && !self.is_over() && !stock.has_set()
    }

    /// Decides what a thread does now.
    ///
    /// # Errors
    /// None that a request did not already have; they end the epoch.
    pub(super) fn next(&mut self, stock: &mut Stock, home: &Arc<Desk>) -> Result<Next> {
        if self.stopped || self.failure.is_some() || self.made == self.cut.count() {
            return Ok(Next::Leave);
        }
        let job = match self.rooms.clone() {
            None => {
                let open = self.begin_several(stock, home, |_, _| true)?;
                (!open.is_empty()).then_some(Job::Fill { open, room: None })
            }
            Some(rooms) => {
                self.open_rooms(&rooms);
                match self.visit(&rooms, stock, home)? {
                    None => self.load(),
                    visit => visit,
                }
            }
        };
        self.busy += usize::from(job.is_some());
        Ok(job.map_or(Next::Wait, Next::Do))
    }

    /// Begins the next batch, when there is memory for it.
    fn begin(&mut self, stock: &mut Stock, home: &Arc<Desk>) -> Result<Option<Open>> {
        if self.next == self.cut.count() {
            return Ok(None);
        }
        if !stock.has_set() {
            return Ok(None);
        }
        let unit = self.cut.unit(self.next)?;
        let visited = self.cut.span(self.next).start;
        self.next += 1;
        Ok(stock.take_set(home).map(|leases| Open {
            unit,
            leases,
            visited,
        }))
    }

    /// Begins the next batches, as many as are made at a time and there is memory for, while `is_here` says yes.
    fn begin_several(
        &mut self,
        stock: &mut Stock,
        home: &Arc<Desk>,
        is_here: impl Fn(&Cut, u64) -> bool,
    ) -> Result<Vec<Open>> {
        let mut several = Vec::new();
        let most = stock.together();
        while several.len() < most
            && self.next < self.cut.count()
            && is_here(&self.cut, self.next)
            && let Some(open) = self.begin(stock, home)?
        {
            several.push(open);
        }
        Ok(several)
    }

    fn open_rooms(&mut self, rooms: &Rooms) {
        while self.active.len() < OPEN_ROOMS && self.next_room < self.end_room {
            let room = rooms.open(self.next_room);
            let positions = room.positions();
            // A pool none of whose rows are in the part that is gone through has no positions.
            if !positions.is_empty() {
                self.active.push_back(Active {
                    index: self.next_room,
                    given_out: 0,
                    loaded: 0,
                    visits: self.cut.units_in(&positions),
                    room: Arc::new(room),
                });
            }
            self.next_room += 1;
        }
    }

    /// Finds a batch that a room which is read has rows for.
    fn visit(&mut self, rooms: &Rooms, stock: &mut Stock, home: &Arc<Desk>) -> Result<Option<Job>> {
        for place in 0..self.active.len() {
            let active = &self.active[place];
            if active.loaded < active.room.tasks() {
                continue;
            }
            let (index, room) = (active.index, Arc::clone(&active.room));
            let positions = room.positions();
            let mut open = self.open.iter();
            let waiting = open.find(|(_, open)| positions.contains(&open.visited));
            if let Some(sequence) = waiting.map(|(sequence, _)| *sequence)
                && let Some(open) = self.open.remove(&sequence)
            {
                let (open, room) = (vec![open], Some((index, room)));
                return Ok(Some(Job::Fill { open, room }));
            }
            let is_here = |cut: &Cut, next| rooms.at(cut.span(next).start) == index;
            let open = self.begin_several(stock, home, is_here)?;
            if !open.is_empty() {
                let room = Some((index, room));
                return Ok(Some(Job::Fill { open, room }));
            }
        }
        Ok(None)
    }

    fn load(&mut self) -> Option<Job> {
        let active = self
            .active
            .iter_mut()
            .find(|active| active.given_out < active.room.tasks())?;
        active.given_out += 1;
        Some(Job::Load {
            room: Arc::clone(&active.room),
            index: active.index,
            task: active.given_out - 1,
            memory: self.spare.pop(),
        })
    }

    /// Notes that a block was read.
    pub(super) fn loaded(&mut self, index: usize) {
        self.busy -= 1;
        if let Some(active) = self.active.iter_mut().find(|active| active.index == index) {
            active.loaded += 1;
        }
    }

    /// Notes that batches have what a room has for them, or all.
    pub(super) fn filled(&mut self, several: Vec<Open>, room: Option<usize>) {
        self.busy -= 1;
        for open in several {
            self.put(open, room);
        }
    }

    fn put(&mut self, open: Open, room: Option<usize>) {
        if let Some(index) = room
            && let Some(place) = self.active.iter().position(|active| active.index == index)
        {
            self.active[place].visits -= 1;
            if self.active[place].visits == 0
                && let Some(active) = self.active.remove(place)
                && let Some(room) = Arc::into_inner(active.room)
            {
                self.spare.extend(room.into_memory());
            }
        }
        if open.visited == open.unit.end {
            self.made += 1;
            self.ready.insert(open.unit.sequence, open);
        } else {
            self.open.insert(open.unit.sequence, open);
        }
    }
}
