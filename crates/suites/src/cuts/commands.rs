//! The commands during which the power is cut.

use super::bases::{dumpe2fs, filled_by_seed, in_memory, lengthen, seen, torn};
use super::trial::{ByOthers, Checked, Effort, Reads, Trial, Wrap};
use crate::fill::{Scale, change};
use crate::image::Image;
use crate::library::Library;
use crate::listing::Listing;
use crate::op::Tree;
use lanefs_device::{Device, DeviceError, forward};
use lanefs_ext4::{Atime, Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_offline::{
    Draft, Error, FeatureChange, Image as Opened, JournalChange, JournalSize, Reserved, Settings,
    recover,
};
use lanefs_ondisk::features::Features;
use std::sync::Arc;

const UUID: [u8; 16] = *b"\x0f\x0e\x0d\x0c\x0b\x0a\x49\x08\x87\x06\x05\x04\x03\x02\x01\x00";
const UUID_TEXT: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";

/// The state of the image before a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Clean,
    /// A power cut left the image in this state, so the image must be recovered before the command
    /// runs.
    Torn,
}

/// A command with its image.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// Options of mke2fs.
    options: &'static str,
    /// The size of the file system, and that of its device, in megabytes.
    megabytes: [u64; 2],
    found: Found,
    by_others: ByOthers,
    run: fn(Arc<dyn Device>) -> Result<(), Error>,
    /// A field in the output of dumpe2fs, and a function that checks the field's value after the
    /// command.
    field: (&'static str, fn(&str) -> bool),
}

/// The number of files that an edit adds.
const NEW_FILES: u8 = 40;

const SMALL: &str = "-b 1024 -J size=1 -N 600";
/// Options for an image with several groups, so that the superblock has backups in case it is torn.
const GROUPS: &str = "-b 1024 -J size=1 -N 2000 -g 2048";
const LONG_LOG: &str = "-b 1024 -J size=2 -N 2000 -g 2048";
const ANY: (&str, fn(&str) -> bool) = ("Filesystem state", |state| state == "clean");
const NEW_UUID: (&str, fn(&str) -> bool) = ("Filesystem UUID", |uuid| uuid == UUID_TEXT);

use ByOthers::{E2fsck, No, Yes};
use Found::{Clean, Torn};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "recover",
        options: SMALL,
        megabytes: [14, 14],
        found: Torn,
        by_others: Yes,
        run: |device| recover(&device).map(drop),
        field: ANY,
    },
    Command {
        name: "recover, ext3",
        options: "-t ext3 -b 1024 -J size=1 -N 600",
        megabytes: [14, 14],
        found: Torn,
        by_others: Yes,
        run: |device| recover(&device).map(drop),
        field: ANY,
    },
    Command {
        name: "tune -L -U -m -e -c -i -M -o",
        options: GROUPS,
        megabytes: [14, 14],
        found: Clean,
        by_others: Yes,
        run: |device| tune(device, &settings()),
        field: NEW_UUID,
    },
    Command {
        name: "tune -L -U -m -e -c -i -M -o, torn",
        options: GROUPS,
        megabytes: [14, 14],
        found: Torn,
        by_others: Yes,
        run: |device| tune(device, &settings()),
        field: NEW_UUID,
    },
    Command {
        name: "tune -U, checksums of descriptors",
        options: "-b 1024 -J size=1 -N 2000 -g 2048 -O ^metadata_csum,^metadata_csum_seed,uninit_bg",
        megabytes: [14, 14],
        found: Clean,
        by_others: E2fsck,
        run: |device| tune(device, &Settings { uuid: Some(UUID), ..Settings::default() }),
        field: NEW_UUID,
    },
    Command {
        name: "tune -U -O metadata_csum_seed",
        options: "-b 1024 -J size=1 -N 2000 -g 2048 -O ^metadata_csum_seed",
        megabytes: [14, 14],
        found: Clean,
        by_others: Yes,
        run: |device| {
            let seed = Features::by_name("metadata_csum_seed").expect("a feature");
            let features = FeatureChange { set: seed, ..FeatureChange::default() };
            tune(device, &Settings { uuid: Some(UUID), features, ..Settings::default() })
        },
        field: NEW_UUID,
    },
    Command {
        name: "tune -O ^has_journal",
        options: GROUPS,
        megabytes: [14, 14],
        found: Clean,
        by_others: No,
        run: |device| tune(device, &journal(JournalChange::Remove)),
        field: ("Filesystem features", |features| !features.contains("has_journal")),
    },
    Command {
        name: "tune -j",
        options: "-b 1024 -N 2000 -g 2048 -O ^has_journal",
        megabytes: [14, 14],
        found: Clean,
        by_others: No,
        run: |device| tune(device, &journal(resized(1200))),
        field: ("Total journal blocks", |blocks| blocks == "1200"),
    },
    Command {
        name: "tune -J size=2",
        options: GROUPS,
        megabytes: [14, 14],
        found: Clean,
        by_others: No,
        run: |device| tune(device, &journal(resized(2048))),
        field: ("Total journal blocks", |blocks| blocks == "2048"),
    },
    Command {
        name: "resize, larger",
        options: "-b 1024 -J size=1 -N 2000",
        megabytes: [14, 30],
        found: Clean,
        by_others: Yes,
        run: |device| grow(device, 30 << 10),
        field: ("Block count", |blocks| blocks == "30720"),
    },
    Command {
        name: "resize, larger, within the last group",
        options: "-b 1024 -J size=1 -N 2000",
        megabytes: [13, 15],
        found: Clean,
        by_others: Yes,
        run: |device| grow(device, 15 << 10),
        field: ("Block count", |blocks| blocks == "15360"),
    },
    Command {
        name: "resize, larger, one group",
        options: "-b 1024 -J size=1 -N 200",
        megabytes: [5, 7],
        found: Clean,
        by_others: Yes,
        run: |device| grow(device, 7 << 10),
        field: ("Block count", |blocks| blocks == "7168"),
    },
    Command {
        name: "resize, smaller, one group",
        options: "-b 1024 -J size=1 -N 200",
        megabytes: [7, 7],
        found: Clean,
        by_others: No,
        run: |device| shrink(device, 6 << 10),
        field: ("Block count", |blocks| is_at_most(blocks, 6 << 10)),
    },
    Command {
        name: "resize, larger, torn",
        options: "-b 1024 -J size=1 -N 2000 -g 2048",
        megabytes: [14, 24],
        found: Torn,
        by_others: Yes,
        run: |device| grow(device, 24 << 10),
        field: ("Block count", |blocks| blocks == "24576"),
    },
    Command {
        name: "resize, larger, meta_bg",
        options: "-b 1024 -J size=1 -g 512 -O meta_bg,^resize_inode -N 2000",
        megabytes: [14, 20],
        found: Clean,
        by_others: Yes,
        run: |device| grow(device, 20 << 10),
        field: ("Block count", |blocks| blocks == "20480"),
    },
    Command {
        name: "resize, larger, beyond the reserve",
        options: "-b 1024 -J size=1 -g 256 -N 600 -E resize=15000",
        megabytes: [14, 20],
        found: Clean,
        by_others: Yes,
        run: |device| Opened::open(device)?.grow_by_meta_bg(20 << 10).map(drop),
        field: ("Block count", |blocks| blocks == "20480"),
    },
    Command {
        name: "resize, smaller",
        options: "-b 1024 -J size=1 -g 2048 -N 1200",
        megabytes: [24, 24],
        found: Clean,
        by_others: No,
        run: |device| shrink(device, 9 << 10),
        field: ("Block count", |blocks| is_at_most(blocks, 9 << 10)),
    },
    Command {
        name: "resize, smaller, torn",
        options: "-b 1024 -J size=1 -g 2048 -N 1200",
        megabytes: [24, 24],
        found: Torn,
        by_others: No,
        run: |device| shrink(device, 12 << 10),
        field: ("Block count", |blocks| is_at_most(blocks, 12 << 10)),
    },
    Command {
        name: "trim",
        options: GROUPS,
        megabytes: [14, 14],
        found: Clean,
        by_others: Yes,
        run: trim,
        field: ANY,
    },
    Command {
        name: "trim, torn",
        options: SMALL,
        megabytes: [14, 14],
        found: Torn,
        by_others: Yes,
        run: trim,
        field: ANY,
    },
    Command {
        name: "edit",
        options: LONG_LOG,
        megabytes: [14, 14],
        found: Clean,
        by_others: Yes,
        run: edit,
        field: ANY,
    },
    Command {
        name: "edit, torn",
        options: LONG_LOG,
        megabytes: [14, 14],
        found: Torn,
        by_others: Yes,
        run: edit,
        field: ANY,
    },
];

impl Command {
    /// Cuts the power at every write that the command makes. `goes_on` is called after each state,
    /// and returns whether the check continues.
    pub(super) fn check(
        &self,
        seed: u64,
        wrap: Wrap<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Checked, String> {
        let Some(base) = self.base(seed) else { return Ok(Checked::default()) };
        let before = seen(base.clone());
        let (field, is_right) = self.field;
        let check = |image: &Image| {
            let fields = dumpe2fs(image);
            let value = fields.get(field).map_or("", String::as_str);
            assert!(is_right(value), "{}, seed {seed}: {field}: {value}", self.name);
        };
        let by_others = self.by_others;
        let effort = Effort { seed, torn: 2, many: 300, reads: Reads::Some, by_others };
        if !self.name.starts_with("edit") {
            let trial = Trial { change: &self.run, ends: [&before, &before], check: &check };
            return trial.run_on(&base, wrap, effort, goes_on);
        }
        let copy: Arc<dyn Device> =
            Arc::new(lanefs_device::RamDevice::copy_of(&base).expect("memory"));
        (self.run)(copy.clone()).map_err(|error| format!("undisturbed: {error}"))?;
        let (before, after) = (without_times(before), without_times(seen(copy)));
        let once = |device| edit_once(device, &after);
        let trial = Trial { change: &once, ends: [&before, &after], check: &check };
        trial.run_on(&base, wrap, effort, goes_on)
    }

    fn base(&self, seed: u64) -> Option<Arc<dyn Device>> {
        let [megabytes, device] = self.megabytes;
        match self.found {
            Torn => torn(self.options, megabytes, device, seed),
            Clean => {
                let image = filled_by_seed(self.options, &format!("{megabytes}M"), 2, seed)?;
                lengthen(&image, device);
                Some(in_memory(&image))
            }
        }
    }
}

fn is_at_most(number: &str, most: u64) -> bool {
    number.parse::<u64>().is_ok_and(|number| number <= most)
}

fn settings() -> Settings {
    Settings {
        label: Some(b"label of 16 byte".to_vec()),
        uuid: Some(UUID),
        reserved: Some(Reserved::Percent(10.0)),
        on_error: Some(lanefs_ondisk::superblock::OnError::ReadOnly),
        max_mount_count: Some(Some(30)),
        check_interval: Some(86_400),
        last_mounted: Some(b"/srv".to_vec()),
        mount_options: Some(b"noatime".to_vec()),
        ..Settings::default()
    }
}

fn resized(blocks: u32) -> JournalChange {
    JournalChange::Add(JournalSize { blocks: Some(blocks), ..JournalSize::default() })
}

fn journal(change: JournalChange) -> Settings {
    Settings { journal: Some(change), ..Settings::default() }
}

fn tune(device: Arc<dyn Device>, settings: &Settings) -> Result<(), Error> {
    Opened::open(device)?.tune(settings)
}

fn grow(device: Arc<dyn Device>, blocks: u64) -> Result<(), Error> {
    Opened::open(device)?.grow(blocks).map(drop)
}

fn shrink(device: Arc<dyn Device>, blocks: u64) -> Result<(), Error> {
    Opened::open(device)?.shrink(blocks).map(drop)
}

/// Trims a device whose discards leave noise, so that the checks notice if a block in use is
/// discarded.
fn trim(device: Arc<dyn Device>) -> Result<(), Error> {
    Opened::open(Arc::new(Noisy(device)))?.trim(0).map(drop)
}

/// Makes the changes of `fill::change` in a draft, adds files, and then publishes all of this at
/// once.
fn edit(device: Arc<dyn Device>) -> Result<(), Error> {
    let draft = Draft::open(device)?;
    let options = MountOptions { atime: Atime::Noatime, ..MountOptions::default() };
    let mount = Mount::open(draft.device(), options).expect("Lanefs mounts the draft");
    let mut library = Library::new(mount.fs());
    let mut scale = Scale::of_image(2, 1024);
    scale.depth = 6;
    for op in change(scale) {
        // Errors are ignored: in a torn image some files are missing, and some changes have already
        // been made.
        let _ = library.apply(&op);
    }
    let fs = mount.fs();
    for n in 0..NEW_FILES {
        let new = NewInode { kind: NewKind::Regular, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
        let name = format!("edited {n}");
        let file = fs.root().and_then(|root| fs.create(&root, name.as_bytes(), &new));
        // When the command runs again, some of the files already exist.
        if let Ok(file) = file {
            fs.write_at(&file, 0, &[n; 3000], Privilege::Root)?;
        }
    }
    drop(library);
    mount.close().expect("Lanefs unmounts the draft");
    draft.publish().map(drop)
}

/// Recovers the image, and then runs [`edit`] unless the contents are already those of `after`.
fn edit_once(device: Arc<dyn Device>, after: &Listing) -> Result<(), Error> {
    recover(&device)?;
    match after.differences(&seen(device.clone())).is_empty() {
        true => Ok(()),
        false => edit(device),
    }
}

/// Returns the listing without times, which differ from run to run.
fn without_times(mut listing: Listing) -> Listing {
    for entry in listing.entries.values_mut() {
        (entry.atime, entry.mtime, entry.ctime) = (None, None, None);
    }
    listing
}

/// A device whose discarded bytes become noise.
struct Noisy(Arc<dyn Device>);

impl Device for Noisy {
    forward!(0: len, is_read_only, read, write, flush);
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.write_at(offset, &vec![0xa5; usize::try_from(len).unwrap_or(usize::MAX)])
    }
}
