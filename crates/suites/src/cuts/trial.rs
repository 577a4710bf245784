//! The crash states of one recorded change, and their checks.

use super::bases::{contents, try_seen};
use crate::crash::checker::{clean, has_torn_superblock, sound};
use crate::crash::digest::Digests;
use crate::image::{Image, Scratch};
use crate::listing::Listing;
use lanefs_device::{Device, Event, Kept, OverlayDevice, RamDevice, Recording, RecordingDevice};
use lanefs_ext4::{Access, Mount, MountOptions, Primary, log};
use lanefs_offline::{Condition, Error, look, recover};
use lanefs_ondisk::superblock::{JournalPlace, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// If a recording has few writes, more states with torn writes are checked than [`Effort::torn`]
/// says, but at most `MOST_TORN` for each cut.
const MOST_TORN: usize = 12;

/// One state in so many is read as it is.
const READ_SHARE: u64 = 4;

/// The largest block size that the kernel mounts.
const PAGE: usize = 4096;

/// A change under test.
pub type Change<'a> = &'a dyn Fn(Arc<dyn Device>) -> Result<(), Error>;

/// Wraps the device that a change uses.
pub(super) type Wrap<'a> = &'a dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>;

/// Whether e2fsck and the kernel can recover the image after every interruption of the change. If
/// not, `docs/images.md` gives the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByOthers {
    /// They can.
    Yes,
    /// Only e2fsck can.
    E2fsck,
    /// After some interruptions neither can.
    No,
}

/// Which states are read as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    All,
    /// One state in four.
    Some,
}

/// How many states are checked for each cut, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// The seed from which the choices of kept writes are derived.
    pub(super) seed: u64,
    /// The smallest number of states with torn writes for each cut.
    pub(super) torn: u64,
    /// The number of states of a recording that has few writes.
    pub(super) many: usize,
    /// Which states a read-only mount and `lanefs check` read.
    pub(super) reads: Reads,
    /// Who else recovers a copy of each state.
    pub(super) by_others: ByOthers,
}

/// Counts of what was checked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// The number of recordings.
    pub recordings: u64,
    /// The number of writes and flushes of the recordings.
    pub events: u64,
    /// The number of distinct states.
    pub states: u64,
    /// The number of states for which e2fsck recovered a copy.
    pub by_e2fsck: u64,
    /// The number of states that the kernel recovered.
    pub by_kernel: u64,
}

impl Checked {
    pub(super) fn add(&mut self, other: Checked) {
        self.recordings += other.recordings;
        self.events += other.events;
        self.states += other.states;
        self.by_e2fsck += other.by_e2fsck;
        self.by_kernel += other.by_kernel;
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { recordings, events, states, by_e2fsck, by_kernel } = self;
        write!(f, "{recordings} recordings, {events} writes and flushes, {states} states, ")?;
        write!(f, "{by_e2fsck} of them recovered by e2fsck too, {by_kernel} by the kernel")
    }
}

/// A change, and the contents that may be found if it is interrupted.
pub(super) struct Trial<'a> {
    /// The change.
    pub(super) change: Change<'a>,
    /// The contents before the change, and those after it.
    pub(super) ends: [&'a Listing; 2],
    /// Checks the image after the change.
    pub(super) check: &'a dyn Fn(&Image),
}

impl Trial<'_> {
    /// Records the change on a copy of `base`, and checks the states that a power cut at each event
    /// can leave. `goes_on` is called after each state, and returns whether the check continues.
    ///
    /// # Errors
    /// Returns the first state in which a check fails.
    pub(super) fn run(
        &self,
        base: &Arc<dyn Device>,
        effort: Effort,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Checked, String> {
        self.run_on(base, &|device| device, effort, goes_on)
    }

    /// Works like [`Trial::run`], but the change is recorded on the device that `wrap` returns.
    pub(super) fn run_on(
        &self,
        base: &Arc<dyn Device>,
        wrap: Wrap<'_>,
        effort: Effort,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Checked, String> {
        let failed = |error: std::io::Error| error.to_string();
        let inner: Arc<dyn Device> = Arc::new(RamDevice::copy_of(base).map_err(failed)?);
        let device = Arc::new(RecordingDevice::new(inner).map_err(failed)?);
        (self.change)(wrap(device.clone())).map_err(|error| format!("undisturbed: {error}"))?;
        let recording = device.recording();
        let mut states = States {
            trial: self,
            effort,
            scratch: Scratch::new(recording.base()).map_err(failed)?,
            digests: Digests::new(recording.base(), ""),
            known: HashSet::new(),
            sound: HashMap::new(),
            by: [0; 2],
        };
        let events = recording.events().len();
        states.all(&recording, goes_on)?;
        Ok(Checked {
            recordings: 1,
            events: events as u64,
            states: states.known.len() as u64,
            by_e2fsck: states.by[0],
            by_kernel: states.by[1],
        })
    }
}

/// The states of a recording.
struct States<'t, 'r> {
    trial: &'t Trial<'t>,
    effort: Effort,
    scratch: Scratch,
    digests: Digests<'r>,
    /// Digests of the states that were seen.
    known: HashSet<u64>,
    /// The images in which e2fsck found nothing, by digest. For each image, the two values state
    /// whether its contents are those before the change, and whether they are those after the
    /// change.
    sound: HashMap<u64, [bool; 2]>,
    /// The number of states that e2fsck recovered, and that of states that the kernel recovered.
    by: [u64; 2],
}

impl States<'_, '_> {
    fn all(&mut self, recording: &Recording, goes_on: &dyn Fn() -> bool) -> Result<(), String> {
        let mut replay = recording.replay();
        let events = recording.events();
        for cut in 0..=events.len() {
            let mut ways: Vec<_> =
                self.ways(recording, cut).into_iter().map(|kept| (kept, None)).collect();
            let tears = events.get(cut).into_iter().flat_map(superblock_sectors);
            ways.extend(tears.map(|sector| (Kept::All, Some(sector))));
            for (kept, sector) in ways {
                let state = replay.state(cut, kept);
                if let Some((at, bytes)) = sector {
                    state.write_at(at, bytes).map_err(|error| error.to_string())?;
                }
                let digest = self.digests.of(&state);
                if !self.known.insert(digest) {
                    continue;
                }
                self.one(state, digest).map_err(|why| {
                    let last = &events[cut.saturating_sub(8)..cut];
                    let last: Vec<String> = last.iter().map(shown).collect();
                    let (last, torn) = (last.join(", "), sector.map(|(at, _)| at));
                    let all = events.len();
                    format!("cut {cut} of {all}, {kept:?}, sector {torn:?}, after {last}: {why}")
                })?;
                if !goes_on() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn ways(&self, recording: &Recording, cut: usize) -> Vec<Kept> {
        let Effort { seed, torn, many, .. } = self.effort;
        let torn = torn.max((many / recording.events().len().max(1)).min(MOST_TORN) as u64);
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(cut as u64);
        let mut ways = vec![Kept::All, Kept::None];
        for n in 0..torn {
            let seed = seed.wrapping_add(n << 32);
            ways.push(Kept::Torn { seed });
            if n % 2 == 0 {
                ways.push(Kept::Some { seed });
            }
        }
        if cut > 0 && matches!(recording.events()[cut - 1], Event::DurableWrite { .. }) {
            ways.push(Kept::Unended { seed });
        }
        ways
    }

    fn one(&mut self, state: OverlayDevice, digest: u64) -> Result<(), String> {
        let is_torn = has_torn_superblock(&state);
        if is_torn && is_lost(&state) {
            return Ok(());
        }
        if self.effort.reads == Reads::All || digest.is_multiple_of(READ_SHARE) {
            read_as_it_is(&state)?;
        }
        if digest.is_multiple_of(READ_SHARE) {
            let found =
                try_seen(Arc::new(state.fork())).map_err(|why| format!("read-only: {why}"))?;
            self.compare(&contents(found)).map_err(|why| format!("read-only: {why}"))?;
        }
        let recovered = Arc::new(state.fork());
        recover(&(recovered.clone() as Arc<dyn Device>))
            .map_err(|error| format!("recover: {error}"))?;
        self.look(&recovered, [true, true]).map_err(|why| format!("recovered: {why}"))?;
        match is_torn {
            true => self.cut_recovery(&state)?,
            false => self.recover_by_others(&state)?,
        }
        let again = Arc::new(state);
        (self.trial.change)(again.clone()).map_err(|error| format!("again: {error}"))?;
        if self.look(&again, [false, true]).map_err(|why| format!("run again: {why}"))? {
            (self.trial.check)(self.scratch.put(&again).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Cuts the recovery of a state too. Called if the superblock is torn: whatever proves that its
    /// new half is right must stay until the superblock is whole.
    fn cut_recovery(&mut self, state: &OverlayDevice) -> Result<(), String> {
        let recovered = |device: Arc<dyn Device>| recover(&device).map_err(|e| e.to_string());
        let device = Arc::new(RecordingDevice::since(state.fork(), Arc::new(state.fork())));
        recovered(device.clone())?;
        if Primary::read(&*device).is_ok_and(|primary| primary.superblock.mmp_block().is_some()) {
            // After a cut, each recovery would wait for the interval of mmp.
            return Ok(());
        }
        let (old, recording) = (superblock_of(state), device.recording());
        let mut replay = recording.replay();
        for cut in 0..=recording.events().len() {
            for kept in [Kept::All, Kept::None, Kept::Torn { seed: cut as u64 }] {
                let left = Arc::new(replay.state(cut, kept));
                let torn_anew = has_torn_superblock(&left) && superblock_of(&left) != old;
                if torn_anew && is_lost(&left) {
                    continue;
                }
                let looked = recovered(left.clone()).and_then(|_| self.look(&left, [true, true]));
                looked.map_err(|why| format!("cut {cut} of its recovery, {kept:?}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Checks an image with e2fsck, and checks its contents. Returns whether the image differs from
    /// all earlier images.
    fn look(&mut self, image: &Arc<OverlayDevice>, allowed: [bool; 2]) -> Result<bool, String> {
        let digest = self.digests.of(&without_log(image)?);
        let is_new = !self.sound.contains_key(&digest);
        if is_new {
            let file = self.scratch.put(image).map_err(|error| error.to_string())?;
            let verdict = file.check();
            if verdict.status != 0 {
                return Err(format!("e2fsck -fn: {}", verdict.text));
            }
            let found = contents(try_seen(Arc::new(image.fork()))?);
            self.sound.insert(digest, self.compare(&found)?);
        }
        let is = self.sound.get(&digest).copied().unwrap_or_default();
        match is[0] && allowed[0] || is[1] && allowed[1] {
            true => Ok(is_new),
            false => Err("the contents are those of before".into()),
        }
    }

    /// Returns whether the contents are those before the change, and whether they are those after
    /// the change.
    fn compare(&self, found: &Listing) -> Result<[bool; 2], String> {
        let differences = self.trial.ends.map(|end| contents(end.clone()).differences(found));
        let is = [differences[0].is_empty(), differences[1].is_empty()];
        match is {
            [false, false] => {
                let [before, after] = differences.map(|lines| lines.join("\n  "));
                Err(format!("neither before:\n  {before}\nnor after:\n  {after}"))
            }
            is => Ok(is),
        }
    }

    fn recover_by_others(&mut self, state: &OverlayDevice) -> Result<(), String> {
        let by_others = self.effort.by_others;
        if by_others != ByOthers::No {
            self.by[0] += 1;
            self.recover_by_e2fsck(state).map_err(|why| format!("e2fsck -fy: {why}"))?;
        }
        if by_others == ByOthers::Yes {
            self.recover_by_kernel(state).map_err(|why| format!("the kernel: {why}"))?;
        }
        Ok(())
    }

    fn recover_by_kernel(&mut self, state: &OverlayDevice) -> Result<(), String> {
        let geometry =
            Primary::read(state).map_err(|error| error.to_string())?.superblock.geometry();
        if geometry.block_size().bytes() > PAGE {
            return Ok(());
        }
        let file = self.scratch.put(state).map_err(|error| error.to_string())?;
        let Some(mount) = file.kernel_takes("ext4", "")? else { return Ok(()) };
        mount.unmount();
        self.by[1] += 1;
        clean(file, "after the kernel's mount")
    }

    fn recover_by_e2fsck(&self, state: &OverlayDevice) -> Result<(), String> {
        let file = self.scratch.put(state).map_err(|error| error.to_string())?;
        let verdict = file.repair();
        if !verdict.only_replayed() {
            return Err(format!("more than a replay: {}", verdict.text));
        }
        let verdict = file.check();
        if verdict.status != 0 {
            return Err(format!("not clean: {}", verdict.text));
        }
        let device = RamDevice::from_file(file.path()).map_err(|error| error.to_string())?;
        self.compare(&contents(try_seen(Arc::new(device))?)).map(drop)
    }
}

/// Returns the image with zeros in place of the log's contents, and in place of the superblock's
/// times and checksum. Images that differ only in these bytes are not checked twice, because e2fsck
/// checks neither the log's contents nor the times.
fn without_log(image: &OverlayDevice) -> Result<OverlayDevice, String> {
    let masked = image.fork();
    let failed = |error: &dyn fmt::Display| error.to_string();
    let superblock = Primary::read(&masked).map_err(|error| failed(&error))?.superblock;
    if let Some(JournalPlace::Inode(ino)) = superblock.journal() {
        let log = log::find(&masked, &superblock, ino).map_err(|error| failed(&error))?;
        let size = superblock.geometry().block_size().bytes() as u64;
        let blocks = log.map.runs().flat_map(|(start, len)| start.0..start.0 + u64::from(len));
        let zeros = vec![0; size as usize];
        // The first block is kept, because it is the superblock of the log.
        for block in blocks.skip(1) {
            masked.write_at(block * size, &zeros).map_err(|error| failed(&error))?;
        }
    }
    for (at, len) in [(0x2c, 8), (0x3fc, 4)] {
        masked.write_at(1024 + at, &[0; 8][..len]).map_err(|error| failed(&error))?;
    }
    Ok(masked)
}

/// Reads a state without changing it: by a read-only mount, and by `lanefs check`.
///
/// # Errors
/// If the mount fails, or the check finds a fault.
pub fn read_as_it_is(state: &OverlayDevice) -> Result<(), String> {
    let fork = || -> Arc<dyn Device> { Arc::new(state.fork()) };
    let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    Mount::open(fork(), options).map_err(|error| format!("read-only: {error}"))?;
    // The checker reports a torn superblock, a log that the superblock does not name or does not ask
    // to be replayed, and orphans, which the recovery deletes.
    let is_told = |found: Condition| found.has_stale_log || found.half_journal || found.orphans > 0;
    match has_torn_superblock(state) || look(&fork()).is_ok_and(is_told) {
        true => Ok(()),
        false => sound(fork()).map_err(|why| format!("not recovered: {why}")),
    }
}

fn superblock_of(state: &OverlayDevice) -> Option<[u8; SUPERBLOCK_SIZE]> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    state.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok().map(|()| bytes)
}

/// Returns whether a torn superblock has no copy: the file system has one group, and the log is
/// empty. Such a file system is refused.
fn is_lost(state: &OverlayDevice) -> bool {
    let bytes = superblock_of(state);
    let Some(Ok(torn)) = bytes.map(|bytes| Superblock::decode_torn(&bytes)) else { return false };
    let log = log::locate(state, &torn, None);
    torn.geometry().backups().next().is_none()
        && log.is_ok_and(|log| log.is_none_or(|log| log.superblock.start().is_none()))
}

/// Returns the two sectors of the superblock that an event writes. After a power cut only one of
/// them may be new, and random choices rarely meet that moment.
fn superblock_sectors(event: &Event) -> Vec<(u64, &[u8])> {
    let (Event::Write { offset, data } | Event::DurableWrite { offset, data }) = event else {
        return Vec::new();
    };
    let sector = |at: u64| {
        let from = usize::try_from(at.checked_sub(*offset)?).ok()?;
        Some((at, data.get(from..from.checked_add(512)?)?))
    };
    [SUPERBLOCK_OFFSET, SUPERBLOCK_OFFSET + 512].into_iter().filter_map(sector).collect()
}

fn shown(event: &Event) -> String {
    match event {
        Event::Write { offset, data } => format!("{offset}+{}", data.len()),
        Event::DurableWrite { offset, data } => format!("{offset}+{} durable", data.len()),
        Event::Flush { .. } => "flush".into(),
    }
}
