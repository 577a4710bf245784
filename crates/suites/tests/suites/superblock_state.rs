//! Mounts images in every state of the superblock, some of them with damage. Compares the
//! superblock, during the mount and after close, with the one that the kernel's ext4 leaves on an
//! equal image.

use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{Access, Mount, MountOptions, OnError};
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::superblock::{State, Superblock};
use lanefs_suites::image::Image;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const JOURNAL: &str = "-b 1024 -O ^metadata_csum,^metadata_csum_seed";
const NO_JOURNAL: &str = "-b 1024 -O ^metadata_csum,^metadata_csum_seed,^has_journal,^orphan_file";

/// The fields of a superblock that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    valid: bool,
    error: bool,
    recover: bool,
    orphans: bool,
}

impl Seen {
    fn of(device: &dyn Device) -> Seen {
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).expect("a superblock");
        let superblock = Superblock::decode(&bytes).expect("a good superblock");
        Seen {
            valid: superblock.state().contains(State::VALID),
            error: superblock.state().contains(State::ERROR),
            recover: superblock.features().incompat.contains(Incompat::RECOVER),
            orphans: superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT),
        }
    }

    fn on(path: &Path) -> Seen {
        Seen::of(&RamDevice::from_file(path).expect("the image is read"))
    }
}

/// What happens during the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meets {
    Nothing,
    /// The mount reads a damaged directory, with this setting of `errors=`.
    Damage(OnError),
}

/// The state of an image, and how the image is mounted.
#[derive(Debug, Clone, Copy)]
struct Case {
    options: &'static str,
    state: u16,
    /// Whether the image has the feature `orphan_present`.
    orphans: bool,
    access: Access,
    meets: Meets,
}

impl Case {
    fn all() -> Vec<Case> {
        let mut all = Vec::new();
        let met =
            [Meets::Nothing, Meets::Damage(OnError::Continue), Meets::Damage(OnError::ReadOnly)];
        for (options, may) in [(JOURNAL, vec![false, true]), (NO_JOURNAL, vec![false])] {
            for state in 0..4 {
                for &orphans in &may {
                    for access in [Access::ReadWrite, Access::ReadOnly] {
                        let met = if access == Access::ReadWrite { &met[..] } else { &met[..1] };
                        let case = |meets| Case { options, state, orphans, access, meets };
                        all.extend(met.iter().map(|meets| case(*meets)));
                    }
                }
            }
        }
        all
    }

    /// Creates the image, with a damaged directory if the case has one.
    fn image(&self) -> Option<Image> {
        let image = Image::make(self.options, "8M")?;
        image.debugfs(&format!("ssv state {}", self.state));
        if self.orphans {
            image.debugfs("feature orphan_present");
        }
        if self.meets != Meets::Nothing {
            image.debugfs("mkdir damaged");
            let block = image.debugfs("blocks damaged");
            let block: u64 = block.trim().parse().expect("one block");
            // The length of the first record is set to 0.
            image.device().write_at(block * 1024 + 4, &[0; 2]).expect("the damage");
        }
        Some(image)
    }
}

/// Mounts the image with the kernel. Returns the superblock during the mount and after close.
fn by_kernel(case: &Case) -> Option<[Seen; 2]> {
    let image = case.image()?;
    let access = if case.access == Access::ReadOnly { "ro" } else { "rw" };
    let errors = match case.meets {
        Meets::Damage(OnError::ReadOnly) => "remount-ro",
        _ => "continue",
    };
    let mount = image.kernel_mount(&format!("{access},errors={errors}"))?;
    let _ = std::fs::read_dir(mount.path().join("damaged")).map(|entries| entries.count());
    // Errors are ignored, because with errors=remount-ro the mount is already read-only and syncfs
    // fails.
    let _ = rustix::fs::syncfs(std::fs::File::open(mount.path()).expect("the mount"));
    let during = Seen::on(image.path());
    mount.unmount();
    Some([during, Seen::on(image.path())])
}

/// Mounts the image with Lanefs. Returns the superblock during the mount and after close.
fn by_lanefs(case: &Case) -> Option<[Seen; 2]> {
    let image = case.image()?;
    let on_error = match case.meets {
        Meets::Damage(on_error) => on_error,
        Meets::Nothing => OnError::Continue,
    };
    let options = MountOptions { access: case.access, on_error, ..MountOptions::default() };
    let device = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    let mount = Mount::open(device.clone(), options).expect("it mounts");
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    if let Ok(Some(damaged)) = fs.find(&root, b"damaged") {
        let read = fs.read_dir(&damaged, 0, &mut |_| ControlFlow::Continue(()));
        assert!(read.is_err(), "{case:?}: nobody noticed the damage");
        let _ = fs.sync();
    }
    drop(root);
    let during = Seen::of(&*device);
    mount.close().expect("it closes");
    Some([during, Seen::of(&*device)])
}

/// Where the kernel and Lanefs may differ, replaces the kernel's fields with those of Lanefs.
fn allow_differences(case: &Case, kernel: &mut [Seen; 2], ours: &[Seen; 2]) {
    let [during, after] = kernel;
    if let Meets::Damage(on_error) = case.meets {
        // The kernel writes the error flag at once, but Lanefs writes it with the next commit or at
        // close.
        during.error = ours[0].error;
        if on_error == OnError::ReadOnly {
            // The kernel leaves the log for the next mount to replay. Lanefs writes everything in
            // place when it closes, so the log needs no recovery.
            after.recover = ours[1].recover;
            after.orphans = ours[1].orphans;
        }
    }
}

#[test]
fn the_superblock_equals_the_kernels_after_a_mount_in_every_state() {
    let mut wrong = Vec::new();
    let all = Case::all();
    for case in &all {
        let Some(mut kernel) = by_kernel(case) else { return };
        let Some(ours) = by_lanefs(case) else { return };
        allow_differences(case, &mut kernel, &ours);
        if kernel != ours {
            wrong.push(format!("{case:?}\n  kernel {kernel:?}\n  lanefs {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}
