//! The passes of a check, in order:
//!
//! 1. *The log.* A log that has to be replayed is replayed in memory, and the result is checked.
//! 2. *Superblock and descriptors.* If the superblock is damaged, the first intact copy is used
//!    instead.
//! 3. *Inodes*, all tables in parallel: fields, flags, checksums, links, attributes, extent trees
//!    and block pointers. Each block is claimed in a bitmap, so that a second claim on the same
//!    block is noticed. Sizes and `i_blocks` are compared with the claims.
//! 4. *Directories* in parallel: records, names, targets, types, `.` and `..`, indexes with the
//!    hashes of all names, checksums, inline directories.
//! 5. *Paths and link counts*, then orphans, quota files, the resize inode and mmp.
//! 6. *Bitmaps and counts*, which are compared with the claims.
//!
//! A check keeps in memory two bits for each cluster, 8 bytes for each inode that it touches, and
//! 12 bytes for each directory. `Options::memory` limits only the memory for the bits of clusters.
//! If a file system needs more, the inode tables are read in several passes.

use crate::bitmaps::{self, Sums};
use crate::claims::Claims;
use crate::fault::Fault;
use crate::field::Field;
use crate::groups::Groups;
use crate::parents::Parents;
use crate::place::Place;
use crate::report::{Collector, Finding, Report, Totals};
use crate::run::Run;
use crate::states::States;
use crate::superblock::Counts;
use crate::volume::Volume;
use crate::{attributes, directories, journal, links, named, orphans, quota, special};
use crate::{superblock, table};
use lanefs_device::Device;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::thread;
use lanefs_ondisk::Ino;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The options of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The number of threads; 0 means one for each processor.
    pub threads: usize,
    /// The most memory, in bytes, for the maps of used clusters. If they need more, the inode
    /// tables are read several times, once for each part of the file system. If several files use
    /// the same block, the check briefly needs a second set of maps, so that the findings always
    /// name the files with the higher inode numbers.
    pub memory: u64,
    /// The largest number of findings that are kept. Further faults are only counted.
    pub findings: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { threads: 0, memory: 256 << 20, findings: 10_000 }
    }
}

/// The reason why an image could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither the superblock nor a copy of it is valid.
    #[error("no valid superblock: {0}")]
    NoSuperblock(lanefs_ondisk::superblock::Cause),
    /// The log is on another device, and the caller has to replay it first.
    #[error("the log is on another device and has to be replayed first")]
    LogElsewhere,
    /// The log contains fast commits, which a repair cannot replay. The caller has to replace them
    /// with a transaction first.
    #[error("the log has fast commits, which have to be replayed first")]
    FastCommits,
    /// The file system has features that are not known. A repair would damage what they add.
    #[error("{0}; nothing was changed")]
    Unsupported(lanefs_ondisk::Unsupported),
    /// The host has too little memory for one word for each inode of the file system, or for the
    /// maps of used clusters.
    #[error("not enough memory for {inodes} inodes")]
    TooManyInodes {
        /// The number of inodes.
        inodes: u32,
    },
    /// The changes of a repair do not fit in memory.
    #[error("the repair changes more than fits in memory (--cut-shared copies no shared blocks)")]
    TooManyChanges,
}

/// The part of a check that is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Inode tables, with the blocks of all files. Progress is counted in groups.
    Inodes,
    /// Directories. Progress is counted in directories.
    Directories,
}

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The part that is running.
    pub phase: Phase,
    /// The number of units of this part that are complete.
    pub done: u64,
    /// The number of units in this part of the check.
    pub of: u64,
}

type Told<'a> = &'a (dyn Fn(Progress) + Sync);

/// Checks the file system on `device`; calls `told` with the progress, from several threads, while
/// the check runs.
///
/// # Errors
/// [`Error`] if the image cannot be checked. All other faults become findings in the report.
pub fn check(
    device: Arc<dyn Device>,
    options: &Options,
    told: &(dyn Fn(Progress) + Sync),
) -> Result<Report, Error> {
    inspect(device, options, told, &mut |_, _, _| {})
}

/// A function that is called at the end of a check. It gets the state of the check, the parents of
/// the directories, and the findings.
pub(crate) type Then<'t> = &'t mut dyn FnMut(&Run<'_>, &Parents, Vec<Finding>);

/// Works like [`check`], and also calls `then` at the end if one pass was enough to check
/// everything.
pub(crate) fn inspect(
    device: Arc<dyn Device>,
    options: &Options,
    told: &(dyn Fn(Progress) + Sync),
    then: Then<'_>,
) -> Result<Report, Error> {
    let report = Collector::new(options.findings);
    let (superblock, mut counts) =
        superblock::open(&*device, &report).map_err(Error::NoSuperblock)?;
    let mut volume = Volume::new(device, superblock);
    if superblock::is_truncated(&volume, &report) {
        return Ok(report.into_report(Totals::default()));
    }
    if journal::needs_replay_elsewhere(&volume) {
        return Err(Error::LogElsewhere);
    }
    // The log can only be found through the descriptors as they are before the replay. Their faults
    // are not reported here, because the log may contain newer descriptors.
    let scratch = Collector::new(0);
    let groups = Groups::read(&volume, &scratch);
    volume = with_journal(volume, &groups, &report);
    if let Some(after) = journal::check(&volume, &groups, &report) {
        let opened = superblock::open(&*after, &report).map_err(Error::NoSuperblock)?;
        let superblock;
        (superblock, _) = opened;
        // The kernel writes the superblock's counts only when it unmounts. After a crash, only the
        // counts in the group descriptors are right.
        counts = Counts::Old;
        volume = with_journal(Volume::new(after, superblock), &groups, &scratch);
    }
    if superblock::is_truncated(&volume, &report) {
        return Ok(report.into_report(Totals::default()));
    }
    superblock::check(&volume, &report);
    superblock::check_copies(&volume, &report);
    let groups = Groups::read(&volume, &report);
    let (volume, groups, report_to) = (&volume, &groups, &report);
    let orphans = &orphans::all(volume, groups);
    let checker = Checker { volume, counts, groups, orphans, report: report_to, options, told };
    let totals = checker.run(then)?;
    Ok(report.into_report(totals))
}

/// Corrects the number of the journal's inode in memory, if it names another inode.
fn with_journal(volume: Volume, groups: &Groups, report: &Collector) -> Volume {
    let Some(superblock) = named::with_journal(&volume, groups) else { return volume };
    let found = volume.raw().s_journal_inum.get().into();
    report.add(Place::Superblock, Fault::Field { field: Field::JournalInode, found });
    Volume::new(Arc::clone(volume.device()), superblock)
}

struct Checker<'a> {
    volume: &'a Volume,
    counts: Counts,
    groups: &'a Groups,
    orphans: &'a HashSet<Ino>,
    report: &'a Collector,
    options: &'a Options,
    told: Told<'a>,
}

impl Checker<'_> {
    fn threads(&self) -> usize {
        match self.options.threads {
            0 => thread::available_parallelism().map_or(1, |n| n.get()),
            threads => threads,
        }
    }

    fn run(&self, then: Then<'_>) -> Result<Totals, Error> {
        let inodes = self.volume.geometry.inode_count();
        let states = States::new(inodes).ok_or(Error::TooManyInodes { inodes })?;
        let sums = Sums::default();
        let mut totals = Totals::default();
        let windows = self.windows();
        let (is_one, mut kept) = (windows.len() == 1, None);
        for (n, groups) in windows.into_iter().enumerate() {
            let run = self.pass(&states, groups.clone(), n == 0)?;
            self.scan(&run);
            if run.has_doubled.load(Ordering::Relaxed) {
                self.report_doubled(&states, groups.clone())?;
            }
            bitmaps::check_blocks(&run, self.threads(), groups, &sums);
            if n == 0 {
                let parents = Parents::new(std::mem::take(&mut *run.directories.lock()));
                totals = self.check_names(&run, &parents, &sums);
                kept = is_one.then_some((run, parents));
            }
        }
        if self.counts == Counts::Right {
            self.check_sums(&sums);
        }
        totals.blocks = sums.clusters() << self.volume.geometry.cluster_bits();
        if let Some((run, parents)) = kept {
            then(&run, &parents, self.report.findings());
        }
        Ok(totals)
    }

    /// Returns the groups of each pass over the inode tables. One pass is enough if the memory
    /// suffices.
    fn windows(&self) -> Vec<Range<u32>> {
        let geometry = &self.volume.geometry;
        let bytes = (u64::from(geometry.clusters_per_group()) / 8).max(1);
        // Two bits for each cluster.
        let groups = (self.options.memory / 2 / bytes).clamp(1, u32::MAX.into()) as u32;
        let all = geometry.group_count();
        let end = |start: u32| start.saturating_add(groups).min(all);
        (0..all).step_by(groups as usize).map(|start| start..end(start)).collect()
    }

    fn pass<'b>(
        &'b self,
        states: &'b States,
        groups: Range<u32>,
        first: bool,
    ) -> Result<Run<'b>, Error> {
        let per_group = u64::from(self.volume.geometry.clusters_per_group());
        let window = u64::from(groups.start) * per_group..u64::from(groups.end) * per_group;
        let inodes = self.volume.geometry.inode_count();
        let claims = || Claims::new(window.clone()).ok_or(Error::TooManyInodes { inodes });
        let both = [claims()?, claims()?];
        let [claims, own] = &both;
        self.groups.claim(self.volume, self.report, claims, first);
        self.groups.claim(self.volume, self.report, own, false);
        Ok(Run::new(self.volume, self.groups, self.report, states, both, self.orphans, first))
    }

    /// Claims the blocks of all files again on one thread, and reports each block that is claimed
    /// twice. One thread visits the inodes in order, so the finding always names the file with the
    /// higher inode number. With several threads, it would be random which file is the second to
    /// claim the block.
    fn report_doubled(&self, states: &States, groups: Range<u32>) -> Result<(), Error> {
        let again = Run { tells_doubled: true, ..self.pass(states, groups, false)? };
        table::check(&again, 1, &|_| {});
        Ok(())
    }

    fn scan(&self, run: &Run<'_>) {
        let (of, done) = (self.volume.geometry.group_count().into(), AtomicU64::new(0));
        table::check(run, self.threads(), &|n| {
            let done = done.fetch_add(n, Ordering::Relaxed) + n;
            (self.told)(Progress { phase: Phase::Inodes, done, of });
        });
    }

    /// Checks everything that needs the states of all inodes.
    fn check_names(&self, run: &Run<'_>, parents: &Parents, sums: &Sums) -> Totals {
        let threads = self.threads();
        let (of, done) = (parents.inos().len() as u64, AtomicU64::new(0));
        directories::check(run, parents, threads, &|n| {
            let done = done.fetch_add(n, Ordering::Relaxed) + n;
            (self.told)(Progress { phase: Phase::Directories, done, of });
        });
        links::check_paths(run, parents);
        links::check_counts(run, threads);
        attributes::check_references(run);
        named::check(run);
        quota::check(run);
        special::check(run);
        orphans::check(run);
        bitmaps::check_inodes(run, threads, sums);
        Totals {
            inodes: sums.used_inodes(),
            directories: sums.directories(),
            blocks: 0,
            entries: run.entries.load(Ordering::Relaxed),
        }
    }

    fn check_sums(&self, sums: &Sums) {
        let superblock = self.volume.superblock();
        let free = sums.free_clusters() << self.volume.geometry.cluster_bits();
        let count = |what, found: u64, expected: u64| {
            if found != expected {
                self.report.add(Place::Superblock, Fault::Count { what, found, expected });
            }
        };
        count("the number of free blocks", superblock.free_blocks(), free);
        count("the number of free inodes", superblock.free_inodes().into(), sums.free_inodes());
    }
}
