//! Multiple mount protection (feature `mmp`): only one computer writes a file system.
//!
//! The MMP block holds a number. On the computer that has mounted the file system, a thread
//! increments this number at regular intervals. Before a mount writes anything, it waits for longer
//! than one of these intervals, and fails if the number has changed meanwhile. The mount then
//! stores a random number of its own and waits again: of two computers that mount at the same time,
//! only one finds its own number afterwards. The mount skips both waits if the block says that the
//! file system is not mounted. If the thread finds a number that it did not store, the mount writes
//! nothing more.
//!
//! Source: kernel documentation, ext4, "Multiple Mount Protection"; the intervals are those
//! observed in the kernel.

use crate::attr::now;
use crate::mount::find_log::Primary;
use lanefs_device::{Device, DeviceError, Operation, WriteKind, forward, total_len};
use lanefs_lanes::sync::{Arc, OnceLock, thread};
use lanefs_lanes::{Condvar, Mutex, Process, Rank};
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::mmp::{LAST_SEQUENCE, Mmp, Use};
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{Block, Corruption};
use lanefs_plan::{Error, utc};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

/// Seconds between two increments of the number, if the superblock specifies no interval.
const UPDATE_INTERVAL: u16 = 5;
/// The bounds of `mmp_check_interval`, in seconds.
const CHECK_INTERVALS: std::ops::RangeInclusive<u16> = 5..=300;

/// Where the MMP block is, and how its checksum is computed.
struct Place {
    device: Arc<dyn Device>,
    block: Block,
    block_size: usize,
    checksums: Checksums,
}

/// The exclusive right of this computer to write a file system with the feature `mmp`.
///
/// A thread renews the right until this value is dropped. Dropping it marks the file system as
/// unused.
pub struct Exclusive {
    inner: Arc<Inner>,
    thread: Option<thread::JoinHandle<()>>,
    /// The process that has this thread.
    opener: Process,
    mends: bool,
}

struct Inner {
    place: Place,
    /// The device to which the holder of this right writes.
    guarded: Arc<GuardedDevice>,
    /// Seconds between two increments of the number.
    interval: u16,
    /// [rank Load]
    state: Mutex<State>,
    /// Signalled when the right is given up.
    ended: Condvar,
}

struct State {
    /// The contents of the block as this computer stored them.
    mine: Mmp,
    has_ended: bool,
}

impl Exclusive {
    /// Takes the exclusive right to write to the file system on `device`; `None` if the file system
    /// has no `mmp`, or the device cannot be written. Waits for at least 22 seconds if the file
    /// system was not unmounted, since another computer may be using the file system.
    ///
    /// # Errors
    /// [`Error::OtherComputer`], [`Error::BeingChecked`], [`Error::Corruption`], [`Error::Device`].
    pub fn take(device: &Arc<dyn Device>) -> Result<Option<Exclusive>, Error> {
        Exclusive::take_for(device, &Primary::read(&**device)?.superblock)
    }

    /// Works like [`Exclusive::take`], but also takes a file system that e2fsck marked as being
    /// checked. Waits as for a mount, to see whether e2fsck still changes the block. An e2fsck that
    /// waits for an answer from its user does not change the block, so a person must know that no
    /// e2fsck is running. Only a repair may call this function, since e2fsck may have been
    /// interrupted between two writes.
    ///
    /// # Errors
    /// As for [`Exclusive::take`]; [`Error::BeingChecked`] if the block changes.
    pub fn take_over(device: &Arc<dyn Device>) -> Result<Option<Exclusive>, Error> {
        Exclusive::take_by(device, &Primary::read(&**device)?.superblock, CheckMark::TakenOver)
    }

    /// Does the same as [`Exclusive::take`], for a caller that has read the superblock.
    pub(crate) fn take_for(
        device: &Arc<dyn Device>,
        superblock: &Superblock,
    ) -> Result<Option<Exclusive>, Error> {
        Exclusive::take_by(device, superblock, CheckMark::Refused)
    }

    fn take_by(
        device: &Arc<dyn Device>,
        superblock: &Superblock,
        mark: CheckMark,
    ) -> Result<Option<Exclusive>, Error> {
        if device.is_read_only() {
            return Ok(None);
        }
        let Some(place) = Place::of(device, superblock)? else { return Ok(None) };
        let interval = match superblock.mmp_update_interval() {
            0 => UPDATE_INTERVAL,
            interval => interval.min(*CHECK_INTERVALS.end()),
        };
        let found = place.read()?;
        let mends = match found.state {
            Use::Checked => true,
            Use::Mounted(number) => number > LAST_SEQUENCE,
            Use::Clean => false,
        };
        let pause = || thread::sleep(Duration::from_secs(1));
        let mine = claim(&place, &found, mark, interval, &pause)?;
        let guarded = Arc::new(GuardedDevice::new(device.clone()));
        let state = Mutex::new(Rank::Load, State { mine, has_ended: false });
        let inner = Arc::new(Inner { place, guarded, interval, state, ended: Condvar::new() });
        let counting = inner.clone();
        let thread = thread::Builder::new()
            .name("lanefs-mmp".into())
            .spawn(move || counting.count())
            .map_err(|_| Error::Busy)?;
        Ok(Some(Exclusive { inner, thread: Some(thread), opener: Process::this(), mends }))
    }

    /// Returns whether the block was in a state that a check reports: marked as being checked, or
    /// with a number that no mount stores. Taking the right has replaced that state.
    pub fn mends(&self) -> bool {
        self.mends
    }

    /// Returns the time for which [`Exclusive::take`] will wait, with a description of the reason;
    /// `None` if it will not wait.
    pub fn expected_wait(device: &Arc<dyn Device>) -> Option<(Duration, String)> {
        let place = Place::of(device, &Primary::read(&**device).ok()?.superblock).ok()??;
        let found = place.read().ok()?;
        let wait = 2 * patience(&found, 0);
        let (node, time) = (printable(&found.node), utc(found.time));
        (found.state != Use::Checked && wait > 0).then(|| {
            let why = format!("{node} has not unmounted it, and last used it at {time}");
            (Duration::from_secs(wait.into()), why)
        })
    }

    /// Returns the device to write to. That device refuses all writes after the right is lost.
    pub fn device(&self) -> Arc<dyn Device> {
        self.inner.guarded.clone()
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if !self.opener.is_this() {
            std::mem::forget((self.thread.take(), self.inner.clone()));
            return;
        }
        self.inner.state.lock().has_ended = true;
        self.inner.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let Inner { place, guarded, state, .. } = &*self.inner;
        if guarded.is_stopped() {
            return;
        }
        let mine = state.lock().mine.clone();
        let clean = Mmp { state: Use::Clean, time: seconds(), ..mine.clone() };
        // An error is ignored: if the file system stays marked as used, the next mount only waits.
        let _ = place.check(&mine).and_then(|()| place.store(&clean));
    }
}

impl Inner {
    /// Stores the next number at each interval, until the right is given up or lost.
    fn count(&self) {
        let interval = Duration::from_secs(self.interval.into());
        let (mut due, mut mine) = (Instant::now() + interval, self.state.lock().mine.clone());
        while self.sleep_until(due) {
            let start = due - interval;
            let next = || self.place.next(&mine, self.interval, start.elapsed());
            let Some(next) = self.guarded.store(next) else { return };
            mine = next;
            self.state.lock().mine = mine.clone();
            due = Instant::now() + interval;
        }
    }

    /// Sleeps until `due`. Returns `false` immediately if the right is given up before `due`.
    fn sleep_until(&self, due: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if state.has_ended || left.is_zero() {
                return !state.has_ended;
            }
            self.ended.wait_for(&mut state, left);
        }
    }
}

/// What happens if e2fsck has marked the file system as being checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckMark {
    /// The file system is not taken.
    Refused,
    /// The file system is taken if the mark does not change for some time.
    TakenOver,
}

/// Takes the right to write; `found` is the content of the block, and `pause` sleeps for a second.
/// Returns the stored contents of the block.
fn claim(
    place: &Place,
    found: &Mmp,
    mark: CheckMark,
    interval: u16,
    pause: &dyn Fn(),
) -> Result<Mmp, Error> {
    if found.state == Use::Checked && mark == CheckMark::Refused {
        return Err(in_use(found));
    }
    let patience = patience(found, interval);
    place.watch(found, patience, pause)?;
    let number = RandomState::new().build_hasher().finish() as u32 % LAST_SEQUENCE + 1;
    let mine = Mmp {
        state: Use::Mounted(number),
        time: seconds(),
        node: rustix::system::uname().nodename().to_bytes().to_vec(),
        device: b"lanefs".to_vec(),
        check_interval: check_interval(found.check_interval, interval),
    };
    place.store(&mine)?;
    place.watch(&mine, patience, pause)?;
    Ok(mine)
}

/// Returns how many seconds to wait. A computer that has mounted the file system stores a new
/// number within this time. Returns 0 if the file system was unmounted.
fn patience(found: &Mmp, interval: u16) -> u16 {
    let check_interval = check_interval(found.check_interval, interval);
    match found.state {
        Use::Clean => 0,
        Use::Checked | Use::Mounted(_) => (2 * check_interval + 1).min(check_interval + 60),
    }
}

fn check_interval(one: u16, other: u16) -> u16 {
    one.max(other).clamp(*CHECK_INTERVALS.start(), *CHECK_INTERVALS.end())
}

impl Place {
    fn of(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<Option<Place>, Error> {
        let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
        let Some(block) = superblock.mmp_block() else { return Ok(None) };
        if !geometry.contains(block) || geometry.primary_metadata().contains(&block.0) {
            return Err(Error::OutsideFileSystem { block });
        }
        let (device, block_size) = (device.clone(), geometry.block_size().bytes());
        Ok(Some(Place { device, block, block_size, checksums }))
    }

    fn offset(&self) -> u64 {
        self.block.0 * self.block_size as u64
    }

    fn bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.block_size];
        self.device.read_fresh_at(self.offset(), &mut bytes)?;
        Ok(bytes)
    }

    fn read(&self) -> Result<Mmp, Error> {
        let cause = |cause| Corruption::Mmp { block: self.block, cause };
        Ok(Mmp::decode(&self.bytes()?, self.checksums).map_err(cause)?)
    }

    fn store(&self, mmp: &Mmp) -> Result<(), Error> {
        let mut bytes = self.bytes()?;
        let cause = |cause| Corruption::Mmp { block: self.block, cause };
        mmp.encode_into(&mut bytes, self.checksums).map_err(cause)?;
        Ok(self.device.write_durable_at(self.offset(), &bytes)?)
    }

    /// Fails unless the block still has the number and the computer name of `expected`. If the
    /// block is marked as being checked, the time must be the same too, since a running e2fsck
    /// changes only the time.
    fn check(&self, expected: &Mmp) -> Result<(), Error> {
        let found = self.read()?;
        let is_same = found.state == expected.state && found.node == expected.node;
        match is_same && (found.state != Use::Checked || found.time == expected.time) {
            true => Ok(()),
            false => Err(in_use(&found)),
        }
    }

    /// Repeats [`Place::check`] once a second, for `patience` seconds.
    fn watch(&self, expected: &Mmp, patience: u16, pause: &dyn Fn()) -> Result<(), Error> {
        for _ in 0..patience {
            pause();
            self.check(expected)?;
        }
        self.check(expected)
    }

    /// Stores the next number, after a check that no other computer has stored one. The last number
    /// was stored `elapsed` ago.
    fn next(&self, before: &Mmp, interval: u16, elapsed: Duration) -> Result<Mmp, Error> {
        self.check(before)?;
        let number = match before.state {
            Use::Mounted(number) if number < LAST_SEQUENCE => number + 1,
            _ => 1,
        };
        // If this computer is slow to store its number, other computers must wait for longer.
        let slow = u16::try_from(elapsed.as_secs().saturating_mul(2)).unwrap_or(u16::MAX);
        let next = Mmp {
            state: Use::Mounted(number),
            time: seconds(),
            check_interval: check_interval(slow, interval),
            ..before.clone()
        };
        self.store(&next)?;
        Ok(next)
    }
}

/// Returns what the MMP block says about the other user of the file system.
fn in_use(found: &Mmp) -> Error {
    let (node, device) = (printable(&found.node), printable(&found.device));
    let time = found.time;
    match found.state {
        Use::Checked => Error::BeingChecked { node, time },
        Use::Clean | Use::Mounted(_) => Error::OtherComputer { node, device, time },
    }
}

fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().filter(|c| !c.is_control()).collect()
}

fn seconds() -> u64 {
    now().secs.try_into().unwrap_or(0)
}

// A device that refuses writes after this computer has lost the right to write.

/// Wraps the device of a file system with the feature `mmp`. After [`GuardedDevice::stop`] no write
/// reaches the device, whether it comes from an operation, a commit, or the record of an abort.
pub(crate) struct GuardedDevice {
    inner: Arc<dyn Device>,
    /// The reason why all writes are refused. Set at most once.
    stopped: OnceLock<String>,
    /// Held while the MMP block is stored. [rank Load]
    storing: Mutex<()>,
}

impl GuardedDevice {
    pub(crate) fn new(inner: Arc<dyn Device>) -> GuardedDevice {
        let storing = Mutex::new(Rank::Load, ());
        GuardedDevice { inner, stopped: OnceLock::new(), storing }
    }

    /// Stores the MMP block with `store`. If that fails, refuses all writes from now on; returns
    /// `None`.
    pub(crate) fn store<T>(&self, store: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        let _storing = self.storing.lock();
        store().inspect_err(|why| drop(self.stopped.set(format!("no longer written: {why}")))).ok()
    }

    /// Returns the result of a flush or a durable write. The host may report lost writes to only
    /// one caller. If that was the thread that stores the MMP block, the flush fails too.
    fn settle(&self, op: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        drop(self.storing.lock());
        self.check(op, offset, len)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    fn check(&self, op: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(DeviceError::new(op, offset, len, io::Error::other(why.clone()))),
        }
    }
}

impl Device for GuardedDevice {
    forward!(inner: len, alignment, row_len, is_read_only, read);
    fn lengthen(&self, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Write, len, 0)?;
        self.inner.lengthen(len)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let len = total_len(bufs);
        self.check(Operation::Write, offset, len)?;
        self.inner.write(offset, bufs, kind)?;
        match kind.is_durable() {
            true => self.settle(Operation::Write, offset, len),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush, 0, 0)?;
        self.inner.flush()?;
        self.settle(Operation::Flush, 0, 0)
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, len)?;
        self.inner.write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Discard, offset, len)?;
        self.inner.discard(offset, len)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
