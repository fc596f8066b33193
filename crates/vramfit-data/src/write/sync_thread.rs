//! Making what was written safe against a power cut while more is written: the disk works, and so do the
//! threads that compress.

use std::fs::File;
use std::io::{Error, Result};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::journal::{Entry, Journal};

/// A thread that synchronizes a file, and notes what is then on the disk. Dropping it waits for the thread.
#[derive(Debug)]
pub(super) struct SyncThread {
    entries: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl SyncThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread, or no second handle of the file.
    pub(super) fn start(file: &File, journal: Journal) -> Result<Self> {
        let file = file.try_clone()?;
        // Nobody waits in between, so no more is unsafe than what is written during one synchronization.
        let (entries, received) = sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("vramfit-keep".into())
            .spawn(move || run(&file, journal, &received))?;
        Ok(SyncThread { entries: Some(entries), thread: Some(thread) })
    }

    /// Syncs what an entry describes, all of which was written. Returns at once, or when the entry before
    /// is on the disk.
    ///
    /// # Errors
    /// The error of an earlier sync, until it is reported.
    pub(super) fn submit(&mut self, entry: Entry) -> Result<()> {
        match &self.entries {
            Some(entries) if entries.send(entry).is_ok() => Ok(()),
            // It has ended early, with an error.
            _ => self.finish(),
        }
    }

    /// Waits until all entries are safe.
    ///
    /// # Errors
    /// The error of a sync.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.entries = None;
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::other("the thread that syncs the file to disk panicked")),
        }
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        // The error was already reported.
        let _ = self.finish();
    }
}

fn run(file: &File, mut journal: Journal, entries: &Receiver<Entry>) -> Result<()> {
    for entry in entries {
        file.sync_data()?;
        journal.add(&entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_noted_in_order_when_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let file = File::create(folder.path().join("file")).unwrap();
        let journal = Journal::create(&path, "test").unwrap();
        let mut sync_thread = SyncThread::start(&file, journal).unwrap();
        for pieces in 1..=20 {
            let entry = Entry { pieces, end: pieces * 10, chunks: vec![10] };
            sync_thread.submit(entry).unwrap();
        }
        drop(sync_thread);
        let (_, done) = Journal::open(&path, "test").unwrap().unwrap();
        assert_eq!((done.pieces, done.end, done.chunks.len()), (20, 200, 20));
    }

    #[test]
    fn a_disk_error_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::create(&folder.path().join("journal"), "test").unwrap();
        // A device that cannot be synchronized.
        let file = File::options().write(true).open("/dev/null").unwrap();
        let mut sync_thread = SyncThread::start(&file, journal).unwrap();
        sync_thread.submit(Entry::default()).unwrap();
        let told = sync_thread.submit(Entry::default()).and(sync_thread.finish());
        assert!(told.is_err());
        assert!(sync_thread.finish().is_ok());
    }
}
