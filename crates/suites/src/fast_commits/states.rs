//! The checks of the crash states.

use super::file_history::{Moment, View, compare};
use super::findings::Findings;
use super::workload::Workload;
use crate::crash::checker::{clean, has_torn_superblock, mount, sound};
use crate::image::Scratch;
use crate::listing::library_names;
use crate::op::{Path, join};
use fastrand::Rng;
use lanefs_device::{Device, Kept, OverlayDevice};
use lanefs_ext4::{Fs, InodeRef};
use lanefs_ondisk::FileType;
use std::sync::Arc;

/// Checks three crash states at each of about `cuts` cuts.
pub(super) fn check_states(
    seed: u64,
    workload: &Workload,
    cuts: usize,
    found: &mut Findings,
) -> Result<(), String> {
    let recording = workload.device.recording();
    let events = recording.events().len();
    // The kernel mounts only the second of the two image files, because the loop device may keep
    // that file open for a while after the unmount.
    let new = || Scratch::new(recording.base()).map_err(|e| e.to_string());
    let scratch = [new()?, new()?];
    let mut replay = recording.replay();
    let every = (events / cuts).max(1);
    let mut rng = Rng::with_seed(seed);
    for cut in (rng.usize(..every)..=events).step_by(every) {
        for kept in [
            Kept::Unended { seed: rng.u64(..) },
            Kept::Some { seed: rng.u64(..) },
            Kept::Torn { seed: rng.u64(..) },
        ] {
            let state = replay.state(cut, kept);
            if has_torn_superblock(&state) {
                continue;
            }
            let ended = match kept {
                Kept::Unended { .. } => cut.saturating_sub(1),
                _ => cut,
            };
            let at = Moment { cut, ended };
            let checked = check_state(workload, at, &state, &scratch, &mut rng, found);
            checked.map_err(|why| format!("cut {cut} of {events}, {kept:?}: {why}"))?;
        }
    }
    Ok(())
}

fn check_state(
    workload: &Workload,
    at: Moment,
    state: &OverlayDevice,
    [plain, mounted]: &[Scratch; 2],
    rng: &mut Rng,
    found: &mut Findings,
) -> Result<(), String> {
    let fast = lanefs_offline::look(&(Arc::new(state.fork()) as Arc<dyn Device>))
        .map_err(|e| format!("a look: {e}"))?
        .fast_commits;
    let recovered = Arc::new(state.fork());
    let view = through_lanefs(recovered.clone())?;
    compare(&workload.record, at, &view)
        .map_err(|why| format!("Lanefs, {fast} fast commits: {why}"))?;
    sound(recovered.clone())?;
    found.states += 1;
    found.with_fast_commits += u64::from(fast > 0);
    if rng.u32(..8) == 0 {
        clean(plain.put(&recovered).map_err(|e| e.to_string())?, "recovered by Lanefs")?;
    }
    // e2fsck runs only if there are fast commits to replay. If the fast-commit area has only fast
    // commits of an older transaction, e2fsck (1.47.0) drops the whole log.
    if fast > 0 && rng.u32(..6) == 0 {
        let image = plain.put(state).map_err(|e| e.to_string())?;
        let said = image.repair().text;
        clean(image, "replayed by e2fsck").map_err(|why| format!("{why}\nbefore: {said}"))?;
        let view = through_lanefs(image.device())?;
        compare(&workload.record, at, &view)
            .map_err(|why| format!("e2fsck, {fast} fast commits: {why}\n{said}"))?;
        found.by_e2fsck += 1;
    }
    if rng.u32(..6) == 0 {
        let image = mounted.put(state).map_err(|e| e.to_string())?;
        let Some(mounted) = image.kernel_mount("") else { return Ok(()) };
        let mut view = View::new();
        of_host(mounted.path(), &Path::new(), &mut view).map_err(|e| e.to_string())?;
        mounted.unmount();
        compare(&workload.record, at, &view)
            .map_err(|why| format!("the kernel, {fast} fast commits: {why}"))?;
        clean(image, "replayed by the kernel")?;
        found.by_kernel += 1;
    }
    Ok(())
}

fn through_lanefs(device: Arc<dyn Device>) -> Result<View, String> {
    let mount = mount(device)?;
    let mut view = View::new();
    let seen = mount.fs().root().and_then(|root| of_library(mount.fs(), &root, b"", &mut view));
    seen.map_err(|e| format!("Lanefs cannot read it: {e}"))?;
    mount.close().map_err(|e| format!("unmount: {e}"))?;
    Ok(view)
}

fn of_library(
    fs: &Fs,
    dir: &InodeRef,
    at: &[u8],
    view: &mut View,
) -> Result<(), lanefs_ext4::Error> {
    for (name, ino) in library_names(fs, dir)? {
        let (inode, path) = (fs.get(ino, None)?, join(at, &name));
        let attr = inode.attr();
        match attr.file_type {
            FileType::Directory => of_library(fs, &inode, &path, view)?,
            _ => {
                let mut bytes = vec![0; attr.size as usize];
                let n = fs.read_at(&inode, 0, &mut bytes)?;
                bytes.truncate(n);
                view.insert(path, (attr.permissions, bytes));
            }
        }
    }
    Ok(())
}

fn of_host(dir: &std::path::Path, at: &Path, view: &mut View) -> std::io::Result<()> {
    use std::os::unix::{ffi::OsStrExt, fs::PermissionsExt};
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let (path, meta) = (join(at, entry.file_name().as_bytes()), entry.metadata()?);
        match meta.is_dir() {
            true => of_host(&entry.path(), &path, view)?,
            false => {
                let mode = meta.permissions().mode() as u16 & 0xfff;
                view.insert(path, (mode, std::fs::read(entry.path())?));
            }
        }
    }
    Ok(())
}
