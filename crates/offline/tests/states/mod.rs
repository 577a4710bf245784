//! Crash states of a change: each recording is cut at every write, the change runs again, and
//! e2fsck and a comparison of the contents check the result.

#![allow(dead_code, reason = "each test program uses its own part")]

use lanefs_device::{Device, Event, Kept, OverlayDevice, RamDevice, RecordingDevice};
use lanefs_ext4::{Access, Atime, Mount, MountOptions};
use lanefs_offline::{Error, recover};
use lanefs_suites::fill::{Scale, WideTimes, fill};
use lanefs_suites::image::{Image, Mappings, Scratch};
use lanefs_suites::library::Library;
use lanefs_suites::listing::{self, Listing};
use lanefs_suites::op::{Tree, show};
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::process::Command;
use std::sync::Arc;

/// A change under test.
pub type Change<'a> = &'a dyn Fn(Arc<dyn Device>) -> Result<(), Error>;

/// Creates an image with mke2fs and fills it with Lanefs; returns `None` and prints the reason if
/// mke2fs is missing.
pub fn filled(options: &str, size: &str, megabytes: u64) -> Option<Image> {
    let image = Image::make(options, size)?;
    let block = if options.contains("-b 4096") { 4096 } else { 1024 };
    let mut scale = Scale::of_image(megabytes, block).with(Mappings::of(options));
    scale.depth = 6;
    if options.contains("-I 128") {
        scale.wide_times = WideTimes::No;
    }
    let options = MountOptions { atime: Atime::Noatime, ..MountOptions::default() };
    let mount = Mount::open(image.device(), options).expect("Lanefs mounts it");
    let mut library = Library::new(mount.fs());
    for op in fill(scale) {
        library.apply(&op).unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
    }
    drop(library);
    mount.close().expect("Lanefs unmounts it");
    Some(image)
}

/// Returns a copy of the image in memory.
pub fn in_memory(image: &Image) -> Arc<dyn Device> {
    Arc::new(RamDevice::copy_of(&image.device()).expect("memory"))
}

/// Returns everything visible, without writing.
pub fn seen(device: Arc<dyn Device>) -> Listing {
    let options =
        MountOptions { access: Access::ReadOnly, atime: Atime::Noatime, ..MountOptions::default() };
    let mount = Mount::open(device, options).expect("Lanefs mounts it read-only");
    let listing = listing::of_library(mount.fs());
    listing.unwrap_or_else(|(path, error)| panic!("{}: {error}", show(&path)))
}

/// Returns the output of dumpe2fs -h, by field.
pub fn dumpe2fs(image: &Image) -> std::collections::BTreeMap<String, String> {
    let output = Command::new("dumpe2fs").arg("-h").arg(image.path()).output().expect("dumpe2fs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.trim().into(), value.trim().into())).collect()
}

/// Returns a digest of all bytes that differ from the base.
fn digest(state: &OverlayDevice) -> u64 {
    let mut changes = state.changes();
    changes.sort_by_key(|(at, _)| *at);
    let mut hasher = DefaultHasher::new();
    for (at, bytes) in changes {
        hasher.write_u64(at);
        hasher.write(&bytes);
    }
    hasher.finish()
}

/// The number of checked states.
#[derive(Debug, Default, Clone, Copy)]
pub struct Checked {
    /// Events of the recording.
    pub events: usize,
    /// Distinct states.
    pub states: usize,
}

/// Records `change` on a copy of `base`, and checks the crash states at every event: with all
/// writes kept (a kill), with no write kept, with some kept, and with torn writes. In each state
/// `recover` must make a file system in which e2fsck finds nothing, with the same contents, and so
/// must `change` when it runs again. `check` checks the final image.
pub fn at_every_cut(base: Arc<dyn Device>, change: Change<'_>, check: &dyn Fn(&Image)) -> Checked {
    let before = seen(base.clone());
    between(base, change, [&before, &before], check)
}

/// Works like [`at_every_cut`], for a change of contents: after a recovery the contents are one of
/// the two in `ends`, and after another run they are the second.
pub fn between(
    base: Arc<dyn Device>,
    change: Change<'_>,
    ends: [&Listing; 2],
    check: &dyn Fn(&Image),
) -> Checked {
    let inner: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&base).expect("memory"));
    let device = Arc::new(RecordingDevice::new(inner).expect("a recording"));
    change(device.clone()).expect("the change");
    let recording = device.recording();
    let scratch = Scratch::new(recording.base()).expect("a scratch file");
    let mut replay = recording.replay();
    let mut known = HashSet::new();
    let events = recording.events().len();
    let mut checked = Checked { events, states: 0 };
    for cut in 0..=events {
        let seed = cut as u64;
        let mut ways = vec![Kept::All, Kept::None, Kept::Some { seed }, Kept::Torn { seed }];
        ways.extend((1..5).map(|n| Kept::Torn { seed: seed + 1000 * n }));
        ways.push(Kept::Some { seed: seed + 500 });
        if cut > 0 && matches!(recording.events()[cut - 1], Event::DurableWrite { .. }) {
            ways.push(Kept::Unended { seed });
        }
        for kept in ways {
            let state = replay.state(cut, kept);
            if !known.insert(digest(&state)) {
                continue;
            }
            checked.states += 1;
            let last = &recording.events()[cut.saturating_sub(8)..cut];
            let last: Vec<String> = last.iter().map(shown).collect();
            let context = format!("cut {cut} of {events}, {kept:?}, after {}", last.join(", "));
            let recovered = Arc::new(state.fork());
            recover(&(recovered.clone() as Arc<dyn Device>))
                .unwrap_or_else(|error| panic!("{context}: recover: {error}"));
            check_state(&scratch, &recovered, &ends, &format!("{context}, recovered"));
            let again = Arc::new(state);
            change(again.clone()).unwrap_or_else(|error| panic!("{context}: again: {error}"));
            check_state(&scratch, &again, &ends[1..], &format!("{context}, run again"));
            check(scratch.put(&again).expect("a scratch file"));
        }
    }
    checked
}

fn shown(event: &Event) -> String {
    match event {
        Event::Write { offset, data } => format!("{offset}+{}", data.len()),
        Event::DurableWrite { offset, data } => format!("{offset}+{} durable", data.len()),
        Event::Flush { .. } => "flush".into(),
    }
}

fn check_state(scratch: &Scratch, state: &Arc<OverlayDevice>, allowed: &[&Listing], context: &str) {
    scratch.put(state).expect("a scratch file").assert_clean(context);
    let found = contents(seen(Arc::new(state.fork())));
    let is_one = |listing: &&&Listing| contents((**listing).clone()).differences(&found).is_empty();
    if allowed.iter().find(is_one).is_none() {
        same(allowed[allowed.len() - 1], &found, context);
    }
}

/// Compares contents, without properties that change when blocks move.
#[track_caller]
pub fn same(before: &Listing, after: &Listing, context: &str) {
    let differences = contents(before.clone()).differences(&contents(after.clone()));
    assert!(differences.is_empty(), "{context}:\n  {}", differences.join("\n  "));
}

fn contents(mut listing: Listing) -> Listing {
    for entry in listing.entries.values_mut() {
        (entry.ino, entry.sectors) = (None, None);
    }
    listing
}
