//! The progress of a build.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// If a build takes less time than this, the sizes of directories are not added up.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of the sources was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that were read. For directories, these are the bytes of data of their files. For tars
    /// and layers, they are the bytes as stored, compressed or not.
    pub done: u64,
    /// Bytes of all sources; `None` if a source is a pipe, or was not measured yet.
    pub total: Option<u64>,
}

/// The caller's function that gets the progress. Any thread may call it.
pub(crate) type Tell<'p> = dyn Fn(Progress) + Sync + 'p;

/// Returns how many bytes of data a directory has; `None` if the given function stops the count.
pub(crate) type Measure = fn(&Path, &dyn Fn() -> bool) -> Option<u64>;

/// Counts the bytes of all sources.
pub(crate) struct Meter<'p> {
    tell: Option<Box<Tell<'p>>>,
    done: AtomicU64,
    total: AtomicU64,
    /// Sources of unknown size.
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
        // Release: a thread that finds no unknown size reads the whole sum.
        self.unknown.fetch_sub(1, Ordering::Release);
    }

    /// Adds bytes that were read.
    pub(crate) fn read(&self, bytes: u64) {
        let Some(tell) = &self.tell else { return };
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_known = self.unknown.load(Ordering::Acquire) == 0;
        tell(Progress { done, total: is_known.then(|| self.total.load(Ordering::Relaxed)) });
    }

    /// Runs `build`. If the build takes long, adds up the sizes of `directories` meanwhile, with
    /// `measure`.
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
