//! The checks of a crash state.

use super::contents::Contents;
use super::digest::Digests;
use super::history::History;
use super::mmp::{self, MmpBlock};
use super::tally::{AGAIN, Tally, kind};
use super::words::described;
use crate::home;
use crate::image::{Image, Scratch};
use crate::listing::{self, Listing};
use crate::op::{Path, show};
use lanefs_device::{Device, Event, Kept, OverlayDevice, RecordingDevice};
use lanefs_ext4::{Atime, Fs, Mount, MountOptions};
use lanefs_ondisk::superblock::Superblock;
use std::collections::HashSet;
use std::sync::Arc;

/// The moment of a crash.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// The index of the first event that had not started at this moment.
    cut: usize,
    /// The index of the first event that had not finished at this moment.
    ended: usize,
}

impl Moment {
    fn of(cut: usize, kept: Kept) -> Moment {
        match kept {
            Kept::Unended { .. } => Moment { cut, ended: cut.saturating_sub(1) },
            _ => Moment { cut, ended: cut },
        }
    }
}

/// The crash states to check at one cut.
pub struct Ways {
    /// Which writes the crash keeps, for each state to check. The replay is cheapest if
    /// [`Kept::Unended`] comes first.
    pub kept: Vec<Kept>,
    /// The number of crashes that are simulated while the file system recovers from the first state
    /// of `kept`.
    pub again: usize,
}

/// Checks the crash states of a workload.
pub struct Checker<'h> {
    history: &'h History,
    tally: &'h Tally,
    digests: Digests<'h>,
    scratch: Scratch,
    /// The digest of each checked state, and the number of promises that the state had to keep.
    checked: HashSet<(u64, usize)>,
    /// The superblock before the workload.
    superblock: Superblock,
}

impl<'h> Checker<'h> {
    /// Creates the checker for a workload. Counts are added to `tally`.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn new(history: &'h History, tally: &'h Tally) -> Result<Checker<'h>, String> {
        let base = history.recording.base();
        let digests = Digests::new(base, &history.image);
        let scratch = Scratch::new(base).map_err(|e| e.to_string())?;
        tally.count(|findings| {
            findings.workloads.0 += 1;
            findings.ops += history.ops.len() as u64;
            findings.workloads.1 += u64::from(history.forgetful);
        });
        let mut superblock = [0; 1024];
        base.read_at(1024, &mut superblock).map_err(|e| e.to_string())?;
        let superblock = Superblock::decode(&superblock).map_err(|e| e.to_string())?;
        Ok(Checker { history, tally, digests, scratch, checked: HashSet::new(), superblock })
    }

    /// Returns the number of events in the recording, which is the last cut; the first cut is 0.
    pub fn cuts(&self) -> usize {
        self.history.recording.events().len()
    }

    /// Returns whether the event before this cut is a durable write.
    pub fn is_durable(&self, cut: usize) -> bool {
        let event = cut.checked_sub(1).and_then(|last| self.history.recording.events().get(last));
        matches!(event, Some(Event::DurableWrite { .. }))
    }

    /// For each of `cuts` (in ascending order), checks the states that `ways` returns.
    ///
    /// # Errors
    /// Returns the first state in which a check fails.
    pub fn check_cuts(
        &mut self,
        cuts: &[usize],
        ways: &dyn Fn(usize) -> Ways,
    ) -> Result<(), String> {
        let mut replay = self.history.recording.replay();
        for &cut in cuts {
            let Ways { kept, again } = ways(cut);
            for (n, kept) in kept.into_iter().enumerate() {
                let state = replay.state(cut, kept);
                let whole = mmp::check(&state, &self.superblock)
                    .and_then(|()| mmp::release(&state, &self.superblock));
                if whole.map_err(|why| self.context(cut, kept, why))? == MmpBlock::Torn {
                    if mount(Arc::new(state)).is_ok() {
                        return Err(self.context(cut, kept, "a torn block of mmp".into()));
                    }
                    continue;
                }
                let first = (n == 0 && again > 0).then(|| state.fork());
                let checked = self.state(Moment::of(cut, kept), kind(kept), state);
                checked.map_err(|why| self.context(cut, kept, why))?;
                if let Some(first) = first {
                    let checked = self.crash_again(cut, kept, first, again);
                    let then = |why| format!("then again in the recovery: {why}");
                    checked.map_err(|why| self.context(cut, kept, then(why)))?;
                }
            }
        }
        Ok(())
    }

    fn context(&self, cut: usize, kept: Kept, why: String) -> String {
        let (lo, hi) = self.bounds(Moment::of(cut, kept));
        let from = hi.saturating_sub(12);
        let ops: Vec<_> = (from..=hi).map(|n| format!("{n}: {}", self.history.ops[n])).collect();
        format!(
            "cut {cut} of {}, {kept:?}, promised operation {lo}, begun operation {hi}: {why}\nlast operations:\n  {}",
            self.cuts(),
            ops.join("\n  ")
        )
    }

    /// Returns the numbers of two operations. The tree after the crash must be at least as new as
    /// after the first operation, and at most as new as after the second.
    fn bounds(&self, at: Moment) -> (usize, usize) {
        let kept = self.history.promises.iter().filter(|promise| promise.mark <= at.ended);
        let lo = kept.map(|promise| promise.tree).max().unwrap_or(0);
        let begun = self.history.begun.iter().rposition(|mark| *mark < at.cut).unwrap_or(0);
        // An operation that needs no write can make its promise exactly at this cut, although it
        // does not count as started at this cut. In this case the promised operation is the upper
        // bound too.
        (lo, begun.max(lo))
    }

    fn state(
        &mut self,
        at: Moment,
        kind: &'static str,
        state: OverlayDevice,
    ) -> Result<(), String> {
        let digest = self.digests.of(&state);
        let promises = self.history.promises.partition_point(|promise| promise.mark <= at.ended);
        if !self.checked.insert((digest, promises)) {
            self.tally.meet(digest);
            return Ok(());
        }
        let is_new = self.tally.meet(digest);
        let torn = has_torn_superblock(&state);
        self.tally.count(|findings| findings.torn_superblocks += u64::from(is_new && torn));
        let checks = is_new && self.tally.is_for_e2fsck(digest);
        if torn && self.may_be_refused(&state) {
            self.tally.count(|findings| findings.refused += u64::from(is_new));
            return Ok(());
        }
        // If the superblock is torn, e2fsck does not replay the log, although Lanefs does. With
        // mmp, e2fsck waits for 11 seconds or more before each repair. In these two cases, e2fsck
        // does not replay the log in a copy of the state.
        if checks && !torn && self.superblock.mmp_block().is_none() {
            let image = self.scratch.put(&state).map_err(|e| e.to_string())?;
            let verdict = image.repair();
            if !verdict.only_replayed() {
                return Err(format!("e2fsck -fy had more to do than the replay: {}", verdict.text));
            }
            clean(image, "replayed by e2fsck")?;
        }
        let state = Arc::new(state);
        self.recover(at, state.clone())?;
        if is_new {
            sound(state.clone())?;
        }
        if checks {
            let image = self.scratch.put(&state).map_err(|e| e.to_string())?;
            clean(image, "recovered by Lanefs")?;
        }
        self.tally.count(|findings| {
            *findings.kinds.entry(kind).or_default() += u64::from(is_new);
            findings.checked += u64::from(checks);
        });
        Ok(())
    }

    /// Returns whether the mount of a state with a torn superblock may be refused. If the image has
    /// no backup, and the superblock was torn while the log was empty, no copy of the superblock
    /// exists (see docs/crash-consistency.md).
    fn may_be_refused(&self, state: &OverlayDevice) -> bool {
        let has_backup = self.superblock.geometry().group_count() > 1;
        !has_backup && mount(Arc::new(state.fork())).is_err()
    }

    /// Mounts the device, checks every promise, and unmounts.
    fn recover(&self, at: Moment, device: Arc<dyn Device>) -> Result<(), String> {
        let mount = mount(device)?;
        let found = self.check(at, mount.fs());
        mount.close().map_err(|e| format!("unmount after recovery: {e}"))?;
        found
    }

    /// Simulates `count` crashes during the recovery from a first crash, and checks each resulting
    /// state.
    fn crash_again(
        &mut self,
        cut: usize,
        kept: Kept,
        first: OverlayDevice,
        count: usize,
    ) -> Result<(), String> {
        if has_torn_superblock(&first) && self.may_be_refused(&first) {
            return Ok(());
        }
        let at = Moment::of(cut, kept);
        let device = Arc::new(RecordingDevice::since(first.fork(), Arc::new(first)));
        self.recover(at, device.clone())?;
        let recording = device.recording();
        let events = recording.events().len();
        let mut replay = recording.replay();
        let mut rng = fastrand::Rng::with_seed(cut as u64);
        let mut cuts: Vec<usize> = (0..count).map(|_| rng.usize(..=events)).collect();
        cuts.sort_unstable();
        for second in cuts {
            let state = replay.state(second, Kept::Torn { seed: rng.u64(..) });
            if mmp::release(&state, &self.superblock)? == MmpBlock::Torn {
                continue;
            }
            self.state(at, AGAIN, state).map_err(|why| format!("at {second}: {why}"))?;
        }
        Ok(())
    }

    fn check(&self, at: Moment, fs: &Fs) -> Result<(), String> {
        let seen = listing::shape_of_library(fs);
        let seen = seen.map_err(|(path, e)| format!("{}: {e}", show(&path)))?;
        let seen = seen.filter(|path| path != b"lost+found");
        let (lo, hi) = self.bounds(at);
        // The tree may be the same after several operations, for example if one of them replaces a
        // file with a file of the same size.
        let mut first = None;
        for op in self.find_ops(&seen, lo, hi)? {
            match self.check_files(at, fs, &seen, op, hi) {
                Ok(()) => return Ok(()),
                Err(why) => first.get_or_insert(why),
            };
        }
        first.map_or(Ok(()), Err)
    }

    /// Checks the data of all files, assuming that the tree is the one after `op`.
    fn check_files(
        &self,
        at: Moment,
        fs: &Fs,
        seen: &Listing,
        op: usize,
        hi: usize,
    ) -> Result<(), String> {
        for (path, id) in &self.history.ids[op] {
            if seen.entries.get(path).is_some_and(|entry| entry.mode & 0xf000 == 0x8000) {
                self.check_data(at, fs, path, *id, op, hi)?;
            }
        }
        Ok(())
    }

    /// Returns the operations after which the tree was equal to `seen`, except that a write or
    /// fallocate may be partly done. If no operation fits, returns an error that describes the
    /// difference.
    fn find_ops(&self, seen: &Listing, lo: usize, hi: usize) -> Result<Vec<usize>, String> {
        let shapes = &self.history.shapes;
        let same = |op: &usize| same_but_root(&shapes[*op], seen);
        let found: Vec<usize> = (lo..=hi).filter(same).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        // A crash may leave a write or fallocate partly done. In this case the file size shows how
        // much of it was done.
        let changes = || self.history.changes.values().flatten();
        let is_whole = |op: usize| changes().any(|change| change.op == op && change.moves());
        let partial = |op: &usize| {
            op + 1 < shapes.len()
                && !is_whole(op + 1)
                && is_between(&shapes[*op], &shapes[op + 1], seen)
        };
        let found: Vec<usize> = (lo..=hi).filter(partial).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let least = (lo..=hi).map(|op| (shapes[op].differences(seen).len(), op)).min();
        let nearest = least.map_or(hi, |(_, op)| op);
        let why = shapes[nearest].differences(seen).join("\n  ");
        // If the tree is the one after an operation outside of the bounds, the message names that
        // operation.
        let outside = (0..shapes.len()).find(same);
        Err(format!(
            "no operation between leaves this tree (operation {outside:?} does); nearest is {nearest}, it / found:\n  {why}"
        ))
    }

    /// Checks that each word of a file has one of its allowed values.
    fn check_data(
        &self,
        at: Moment,
        fs: &Fs,
        path: &Path,
        id: u64,
        op: usize,
        hi: usize,
    ) -> Result<(), String> {
        let kept = self.history.promises.iter().filter(|promise| promise.mark <= at.ended);
        let about = kept.filter(|promise| promise.data.0.is_none_or(|file| file == id));
        let sure = about.map(|promise| promise.data.1).max().unwrap_or(0).max(op);
        let changes = self.history.changes.get(&id).map_or(&[][..], Vec::as_slice);
        let contents = Contents::of(id, changes, sure, hi);
        let bytes = read(fs, path)?;
        for (word, offset) in bytes.chunks_exact(8).zip((0..).step_by(8)) {
            let word = u64::from_le_bytes(word.try_into().map_err(|_| "a short word")?);
            if !contents.may_have(offset, word) {
                return Err(format!(
                    "{} (file {id}, {} bytes): at {offset} stands {}, should be {} (sure up to \
                     operation {sure})",
                    show(path),
                    bytes.len(),
                    described(word),
                    described(contents.sure(offset)),
                ));
            }
        }
        Ok(())
    }
}

fn read(fs: &Fs, path: &Path) -> Result<Vec<u8>, String> {
    let mut inode = home::of_library(fs).map_err(|e| e.to_string())?;
    for name in path.split(|b| *b == b'/') {
        let named = fs.lookup(&inode, name).map_err(|e| e.to_string())?;
        let named = named.ok_or_else(|| format!("{}: listed and not found", show(path)))?;
        inode = fs.get(named.ino, None).map_err(|e| e.to_string())?;
    }
    let mut bytes = vec![0; inode.attr().size as usize];
    let n = fs.read_at(&inode, 0, &mut bytes).map_err(|e| e.to_string())?;
    if n == bytes.len() { Ok(bytes) } else { Err(format!("{}: a short read", show(path))) }
}

/// Returns the listing without the root's link count, because that count includes lost+found, which
/// the model does not have.
fn without_root_links(mut listing: Listing) -> Listing {
    if let Some(root) = listing.entries.get_mut(&b""[..]) {
        root.links = None;
    }
    listing
}

fn same_but_root(shape: &Listing, seen: &Listing) -> bool {
    shape.entries.len() == seen.entries.len()
        && shape.entries.iter().all(|(path, entry)| {
            seen.entries.get(path).is_some_and(|other| {
                entry.mode == other.mode
                    && entry.twin == other.twin
                    && (entry.size.is_none() || entry.size == other.size)
                    && (path.is_empty() || entry.links == other.links)
                    && entry.xattrs == other.xattrs
            })
        })
}

/// Returns whether `seen` equals `before`, apart from the sizes of files. Each size must lie
/// between the file's sizes in `before` and `after`.
fn is_between(before: &Listing, after: &Listing, seen: &Listing) -> bool {
    let mut patched = without_root_links(before.clone());
    for (path, entry) in &mut patched.entries {
        let (Some(a), Some(b)) = (after.entries.get(path), seen.entries.get(path)) else {
            return false;
        };
        let (low, high) = (entry.size.min(a.size), entry.size.max(a.size));
        if low != high && (low..=high).contains(&b.size) {
            entry.size = b.size;
        }
    }
    same_but_root(&patched, seen)
}

pub(crate) fn has_torn_superblock(device: &OverlayDevice) -> bool {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).is_err() || Superblock::decode(&bytes).is_err()
}

pub(crate) fn mount(device: Arc<dyn Device>) -> Result<Mount, String> {
    let options = MountOptions { atime: Atime::Noatime, ..home::options() };
    Mount::open(device, options).map_err(|e| format!("Lanefs does not mount it: {e}"))
}

/// Fails unless the independent checker finds a recovered state clean.
pub(crate) fn sound(state: Arc<dyn Device>) -> Result<(), String> {
    let options = lanefs_check::Options { threads: 1, ..lanefs_check::Options::default() };
    let report = lanefs_check::check(state, &options, &|_| {}).map_err(|e| e.to_string())?;
    match report.verdict() {
        lanefs_check::Verdict::Clean => Ok(()),
        verdict => {
            let told: Vec<String> =
                report.findings.iter().take(10).map(|f| f.to_string()).collect();
            Err(format!("recovered by Lanefs, lanefs check: {verdict:?}: {}", told.join("; ")))
        }
    }
}

pub(crate) fn clean(image: &Image, what: &str) -> Result<(), String> {
    let verdict = image.check();
    match verdict.status {
        0 => Ok(()),
        _ => Err(format!("{what}, e2fsck -fn says: {}", verdict.text)),
    }
}
