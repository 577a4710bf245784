//! The progress of a build.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The sizes of directories are added up only if a build takes longer than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of the sources was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many bytes were read. For a directory, the data of its files counts. For a tar or layer,
    /// the stored bytes count, even if they are compressed.
    pub done: u64,
    /// The size of all sources in bytes; `None` if a source is a pipe, or if the size of a source
    /// is not known yet.
    pub total: Option<u64>,
}

/// The caller's function that gets the progress. Any thread may call it.
pub(crate) type Tell<'p> = dyn Fn(Progress) + Sync + 'p;

/// Returns how many bytes of data a directory has. The function in the second argument can stop the
/// count by returning false; then the result is `None`.
pub(crate) type Measure = fn(&Path, &dyn Fn() -> bool) -> Option<u64>;

/// Counts the bytes of all sources.
pub(crate) struct Meter<'p> {
    tell: Option<Box<Tell<'p>>>,
    done: AtomicU64,
    total: AtomicU64,
    /// The number of sources whose size is not known yet.
    unknown: AtomicU64,
}

impl<'p> Meter<'p> {
    pub(crate) fn new(tell: Option<Box<Tell<'p>>>, sources: usize) -> Meter<'p> {
        let unknown = AtomicU64::new(sources as u64);
        Meter { tell, done: AtomicU64::new(0), total: AtomicU64::new(0), unknown }
    }

    /// Adds the size of one source.
    pub(crate) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        // Release, so that a thread that finds no unknown size also reads the complete sum.
        self.unknown.fetch_sub(1, Ordering::Release);
    }

    /// Adds bytes that were read.
    pub(crate) fn read(&self, bytes: u64) {
        let Some(tell) = &self.tell else { return };
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_known = self.unknown.load(Ordering::Acquire) == 0;
        tell(Progress { done, total: is_known.then(|| self.total.load(Ordering::Relaxed)) });
    }

    /// Runs `build`. If the build takes long, another thread meanwhile adds up the sizes of
    /// `directories` by calling `measure`.
    pub(crate) fn beside<T>(
        &self,
        directories: Vec<PathBuf>,
        measure: Measure,
        build: impl FnOnce() -> T,
    ) -> T {
        if self.tell.is_none() || directories.is_empty() {
            return build();
        }
        let (building, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let goes_on = || ended.try_recv() == Err(TryRecvError::Empty);
                for directory in directories {
                    match measure(&directory, &goes_on) {
                        Some(bytes) => self.expect(bytes),
                        None => return,
                    }
                }
            });
            let built = build();
            drop(building);
            built
        })
    }
}

/// A reader that counts its bytes.
pub(crate) struct Counted<'m, R> {
    pub(crate) inner: R,
    pub(crate) meter: &'m Meter<'m>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.meter.read(read as u64);
        Ok(read)
    }
}
