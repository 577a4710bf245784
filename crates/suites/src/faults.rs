//! The fault suite: the n-th read, write or flush fails, for each n. Errors must be reported. If
//! the log cannot be written, all writes must stop. Afterwards, all earlier promises must hold.

use crate::image::Image;
use crate::library::Library;
use crate::listing;
use crate::model::Model;
use crate::op::{File, Op, Path, Tree, show};
use crate::sequence::{Generator, Mix, stage};
use crate::together::Bases;
use lanefs_device::{Duration as Lasting, Fault, FaultyDevice, Operation, OverlayDevice};
use lanefs_ext4::{Atime, Error, Mount, MountOptions, SyncMode};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Returns the operations of a run with a fault, on an image that mke2fs makes with `options`. The
/// operations are random, with more fsyncs than in other suites.
pub fn ops(seed: u64, len: usize, options: &str) -> Vec<Op> {
    let mut ops = stage(1);
    for (n, op) in
        Generator::new(seed, 0, 1, Mix::ManySmall, options).operations(len).into_iter().enumerate()
    {
        let written = match &op {
            Op::Write { file: File::At(path), .. } | Op::Append { file: File::At(path), .. } => {
                Some(path.clone())
            }
            _ => None,
        };
        if !crate::sequence::is_race(&op) {
            ops.push(op);
        }
        if let Some(path) = written.filter(|_| n % 3 == 0) {
            ops.push(Op::Fsync { file: File::At(path), mode: SyncMode::Full });
        }
    }
    ops.push(Op::Sync);
    ops
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// Errors that were reported to the caller.
    pub errors: Vec<String>,
    /// The digest of each file's promised content, by path.
    promised: BTreeMap<Path, u64>,
    /// Whether the log failed.
    log_failed: bool,
    /// The expected tree. It is incomplete once an operation has failed.
    model: Model,
}

fn options() -> MountOptions {
    MountOptions {
        atime: Atime::Noatime,
        // A commit happens only when the workload requests it, so that the n-th device operation is
        // the same in each run.
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    }
}

/// Runs `ops` on `device`, which has one fault, and makes all checks that need no remount.
pub fn run(device: &Arc<FaultyDevice>, ops: &[Op]) -> Result<Run, String> {
    let mut run = Run::default();
    let mount = match Mount::open(device.clone(), options()) {
        Ok(mount) => mount,
        Err(error) => {
            run.errors.push(format!("mount: {error}"));
            return Ok(run);
        }
    };
    run.model = Model::default().with_clusters_of(mount.fs().stat_fs().block_size.into());
    let mut library = Library::new(mount.fs());
    for op in ops {
        let got = library.act(op);
        let failed = got.as_ref().is_err_and(is_of_the_device);
        if failed || (mount.fs().is_read_only() && got.is_err()) {
            let error = got.err().map(|e| e.to_string()).unwrap_or_default();
            run.errors.push(format!("{op:?}: {error}"));
        } else if run.errors.is_empty() {
            let want = run.model.apply(op);
            let errno = got.as_ref().map_err(Error::errno);
            let rename = matches!(op, Op::Rename { .. }) && errno.is_err() && want.is_err();
            if errno != want.as_ref().map_err(|e| *e) && !rename {
                return Err(format!("{op:?} gave {got:?}, should give {want:?}"));
            }
        }
        keep_promises(&mut run, op, failed);
        run.log_failed |= mount.fs().failure().is_some();
        check_state(&mount, &run)?;
    }
    drop(library);
    let failed = mount.fs().failure().is_some();
    match mount.close() {
        Ok(()) if failed => return Err("the log failed, and the unmount says nothing".into()),
        Ok(()) => {}
        Err(error) => run.errors.push(format!("close: {error}")),
    }
    run.model.close_all();
    Ok(run)
}

fn is_of_the_device(error: &Error) -> bool {
    matches!(error, Error::Device(_) | Error::Journal(_))
}

/// Updates the list of promises.
fn keep_promises(run: &mut Run, op: &Op, failed: bool) {
    let about = |path: &Path| vec![path.clone()];
    let changed = match op {
        Op::Fsync { file: File::At(path), .. } if !failed && run.errors.is_empty() => {
            let listing = run.model.listing();
            if let Some(entry) = listing.entries.get(path)
                && entry.mode & 0xf000 == 0x8000
            {
                run.promised.insert(path.clone(), entry.content);
            }
            return;
        }
        Op::Write { file: File::At(path), .. }
        | Op::Append { file: File::At(path), .. }
        | Op::Truncate { file: File::At(path), .. }
        | Op::Fallocate { file: File::At(path), .. }
        | Op::Unlink { path } => about(path),
        // All promises are dropped, because a rename may move whole trees, and an operation on an
        // open file may change a file of any name.
        Op::Rename { .. }
        | Op::Write { .. }
        | Op::Append { .. }
        | Op::Truncate { .. }
        | Op::Fallocate { .. } => {
            run.promised.clear();
            return;
        }
        _ => return,
    };
    // If a file has several names, the promises for all of them are dropped.
    let shape = run.model.shape();
    for path in changed {
        let twin = shape.entries.get(&path).map(|entry| entry.twin.clone());
        run.promised.retain(|other, _| {
            *other != path
                && (twin.is_none() || shape.entries.get(other).map(|e| e.twin.clone()) != twin)
        });
    }
}

/// If the log failed, checks three things: the mount is read-only, the recorded failure names the
/// first cause, and sync returns an error.
fn check_state(mount: &Mount, run: &Run) -> Result<(), String> {
    let Some(cause) = mount.fs().failure() else { return Ok(()) };
    if !mount.fs().is_read_only() {
        return Err(format!(
            "the log failed ({cause}) and the mount is not read-only: {:?}",
            run.errors
        ));
    }
    if !cause.to_string().contains("injected fault") {
        return Err(format!("the first cause is not kept: {cause}"));
    }
    if mount.fs().sync().is_ok() {
        return Err(format!("the log failed ({cause}), and sync says nothing"));
    }
    Ok(())
}

/// Runs `ops` with one fault, and checks the file system afterwards.
pub fn strike(image: &OverlayDevice, ops: &[Op], fault: Fault) -> Result<(), String> {
    let device = Arc::new(image.fork());
    let faulty = Arc::new(FaultyDevice::new(device.clone(), Some(fault)));
    let run = catch_unwind(AssertUnwindSafe(|| run(&faulty, ops)));
    let run = run.map_err(|_| "it panicked".to_string())??;
    let hit = faulty.count(fault.operation) >= fault.nth;
    if fault.operation == Operation::Flush && hit && run.errors.is_empty() {
        return Err("a flush failed and no call returned an error".into());
    }

    let mount = Mount::open(device.clone(), options()).map_err(|e| format!("mount again: {e}"))?;
    let seen = listing::of_library(mount.fs())
        .map_err(|(path, error)| format!("afterwards, {}: {error}", show(&path)))?;
    for (path, digest) in &run.promised {
        match seen.entries.get(path) {
            Some(entry) if entry.content == *digest => {}
            Some(_) => return Err(format!("{} was promised and has changed", show(path))),
            None => return Err(format!("{} was promised and is gone", show(path))),
        }
    }
    if run.errors.is_empty() {
        let mut want = run.model.listing();
        want.entries.remove(&b""[..]);
        let seen = seen.filter(|path| !path.is_empty() && path != b"lost+found");
        let found = want.differences(&seen);
        if !found.is_empty() {
            return Err(format!("nothing was reported and yet: {}", found.join("\n  ")));
        }
    }
    mount.close().map_err(|e| format!("close again: {e}"))?;
    let file = Image::empty();
    device.to_file(file.path()).map_err(|e| e.to_string())?;
    let verdict = file.check();
    match verdict.status {
        0 => Ok(()),
        _ => Err(format!("e2fsck -fn afterwards: {}; errno: {:?}", verdict.text, run.errors)),
    }
}

/// Returns how many device operations of the kind `operation` a run without a fault makes.
pub fn count(image: &OverlayDevice, ops: &[Op], operation: Operation) -> Result<u64, String> {
    let device = Arc::new(FaultyDevice::new(Arc::new(image.fork()), None));
    let run = run(&device, ops)?;
    match run.errors.first() {
        None => Ok(device.count(operation)),
        Some(error) => Err(format!("without a fault: {error}")),
    }
}

/// Runs `ops` twice for every `stride`-th device operation of a kind. In the first run, only this
/// device operation fails; in the second run, all later ones of the kind fail too. Returns the
/// number of runs.
pub fn sweep(
    image: &OverlayDevice,
    ops: &[Op],
    operation: Operation,
    stride: u64,
) -> Result<u64, String> {
    let most = count(image, ops, operation)?;
    let mut done = 0;
    for nth in (1..=most).step_by(stride as usize) {
        for duration in [Lasting::Once, Lasting::FromThenOn] {
            let fault = Fault { operation, nth, duration };
            strike(image, ops, fault).map_err(|why| format!("{fault:?} of {most}: {why}"))?;
            done += 1;
        }
    }
    Ok(done)
}

/// Lets reads, writes and flushes fail in one workload, at no more than `most` device operations of
/// each kind. Returns the number of faults that were tried.
pub fn check(seed: u64, len: usize, most: u64) -> Result<u64, String> {
    let options = ["-b 1024 -J size=1", "-b 4096 -J size=4"][(seed % 2) as usize];
    let Some(image) = Bases::default().fresh(options, "24M") else { return Ok(0) };
    let ops = ops(seed, len, options);
    let errno = |why| format!("seed {seed} ({options}): {why}");
    let mut done = 0;
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        let count = count(&image, &ops, operation).map_err(errno)?;
        let stride = count.div_ceil(most).max(1);
        done += sweep(&image, &ops, operation, stride).map_err(errno)?;
    }
    Ok(done)
}
