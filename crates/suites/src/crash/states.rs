//! Crash states of one short piece of work. Tests use this for changes on disk that random
//! workloads make too rarely.

use super::checker::{clean, has_torn_superblock, mount};
use super::digest::Digests;
use crate::image::Scratch;
use lanefs_device::{Device, Kept, OverlayDevice, RecordingDevice};
use lanefs_ext4::{Error, Fs};
use std::collections::HashSet;
use std::sync::Arc;

/// Runs `work` on a mount of `image`, and checks the states that a crash at each write can leave.
/// States with a torn superblock are left out. For each state, e2fsck must replay the log and find
/// nothing else to do. Lanefs must recover the state, `sound` must accept the result, and e2fsck
/// must find the image clean after the unmount. Returns the number of distinct states.
///
/// # Errors
/// Returns the failure of the work itself, or the first state in which a check fails.
pub fn every_state(
    image: OverlayDevice,
    work: &dyn Fn(&Arc<Fs>) -> Result<(), Error>,
    sound: &dyn Fn(&Arc<Fs>) -> Result<(), String>,
) -> Result<usize, String> {
    let base = image.fork();
    let device = Arc::new(RecordingDevice::since(base, Arc::new(image)));
    let mounted = mount(device.clone())?;
    work(mounted.fs()).map_err(|error| format!("the work itself: {error}"))?;
    mounted.close().map_err(|error| format!("close: {error}"))?;
    let recording = device.recording();
    let mut digests = Digests::new(recording.base(), "");
    let scratch = Scratch::new(recording.base()).map_err(|e| e.to_string())?;
    let (mut replay, mut met) = (recording.replay(), HashSet::new());
    let events = recording.events().len();
    for cut in 0..=events {
        let seed = cut as u64;
        for kept in [Kept::None, Kept::All, Kept::Torn { seed }, Kept::Some { seed }] {
            let state = replay.state(cut, kept);
            if has_torn_superblock(&state) || !met.insert(digests.of(&state)) {
                continue;
            }
            let checked = check(&scratch, state, sound);
            checked.map_err(|why| format!("cut {cut} of {events}, {kept:?}: {why}"))?;
        }
    }
    Ok(met.len())
}

fn check(
    scratch: &Scratch,
    state: OverlayDevice,
    sound: &dyn Fn(&Arc<Fs>) -> Result<(), String>,
) -> Result<(), String> {
    let image = scratch.put(&state).map_err(|e| e.to_string())?;
    let verdict = image.repair();
    if !verdict.only_replayed() {
        return Err(format!("e2fsck -fy had more to do than the replay: {}", verdict.text));
    }
    clean(image, "replayed by e2fsck")?;
    let state = Arc::new(state);
    let mounted = mount(state.clone() as Arc<dyn Device>)?;
    let found = sound(mounted.fs());
    mounted.close().map_err(|error| format!("unmount after recovery: {error}"))?;
    found?;
    let image = scratch.put(&state).map_err(|e| e.to_string())?;
    clean(image, "recovered by Lanefs")
}
