//! Exchanges images between the kernel and Lanefs: one of the two fills an image, and the other
//! reads and changes this image.

use super::debugfs;
use super::format::Format;
use crate::both::{open, run_all};
use crate::fill::{Scale, change, fill};
use crate::home;
use crate::image::{Image, block_size_of};
use crate::kernel;
use crate::library::Library;
use crate::listing::{self, Listing};
use crate::op::{Op, show};
use lanefs_device::{Access as DeviceAccess, FileDevice, OpenOptions};
use lanefs_ext4::{Access, Mount, MountOptions};
use std::sync::Arc;

/// What this machine's kernel can do with images of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// The kernel reads and writes the images.
    Writes,
    /// The kernel mounts the images read-only, but not for writing.
    Reads,
    /// The kernel does not mount the images.
    Refuses,
}

/// Words in mke2fs options. Each stands for a feature that a kernel may be built without.
const OPTIONAL: [&str; 3] = ["casefold", "quota", "verity"];

impl Kernel {
    /// Finds out what the kernel can do with images of `format`. A kernel must mount every image,
    /// except those with one of the [`OPTIONAL`] features or with blocks larger than a page. For
    /// these exceptions, the function tries to mount `image`.
    fn of(format: Format, image: &Image) -> Kernel {
        let large = block_size_of(format.options) > 4096;
        let optional = large || OPTIONAL.iter().any(|word| format.options.contains(word));
        let kind = format.kernel_type();
        match optional {
            false => Kernel::Writes,
            true if image.is_mounted_by_kernel(kind, "noatime") => Kernel::Writes,
            true if image.is_mounted_by_kernel(kind, "ro") => Kernel::Reads,
            true => Kernel::Refuses,
        }
    }
}

/// Exchanges images of a format between the kernel and Lanefs. Each of the two fills one image, and
/// then reads and changes the image that the other filled. The kernel, e2fsck and debugfs check
/// both images. Returns `None` and prints the reason if this machine has no mke2fs or cannot mount
/// images.
///
/// # Panics
/// At the first difference.
pub fn both_ways(format: Format, scale: Scale) -> Option<Kernel> {
    let exchange = Exchange { format, fill: fill(scale), change: change(scale) };
    let fresh = format.make()?;
    match Kernel::of(format, &fresh) {
        Kernel::Writes => exchange.with_writer().map(|()| Kernel::Writes),
        other => exchange.without_writer(other == Kernel::Reads).map(|()| other),
    }
}

struct Exchange {
    format: Format,
    fill: Vec<Op>,
    change: Vec<Op>,
}

impl Exchange {
    fn with_writer(&self) -> Option<()> {
        let theirs = self.format.make()?;
        run_on_kernel(self.format, &theirs, &self.fill)?;
        let before = self.inspect(&theirs, true, "filled by the kernel")?;

        let ours = self.format.make()?;
        run_on_library(&ours, &self.fill);
        let after = self.inspect(&ours, true, "filled by Lanefs")?;
        self.assert_same_tree(before, after, "filled by the kernel / by Lanefs");

        // Lanefs and the kernel each change the image that the other filled.
        run_on_library(&theirs, &self.change);
        run_on_kernel(self.format, &ours, &self.change)?;
        let a = self.inspect(&theirs, true, "filled by the kernel, changed by Lanefs")?;
        let b = self.inspect(&ours, true, "filled by Lanefs, changed by the kernel")?;
        self.assert_same_tree(a, b, "changed by Lanefs / by the kernel");
        Some(())
    }

    /// Fills and changes an image with Lanefs. If `reads` is true, the kernel reads the image, but
    /// does not write to it.
    fn without_writer(&self, reads: bool) -> Option<()> {
        let ours = self.format.make()?;
        run_on_library(&ours, &self.fill);
        self.inspect(&ours, reads, "filled by Lanefs")?;
        run_on_library(&ours, &self.change);
        self.inspect(&ours, reads, "changed by Lanefs")?;
        Some(())
    }

    /// Checks an image with e2fsck and debugfs, and with the kernel if `kernel_reads` is true.
    /// Returns the tree that Lanefs shows.
    fn inspect(&self, image: &Image, kernel_reads: bool, what: &str) -> Option<Listing> {
        let context = format!("mke2fs {} {}: {what}", self.format.options, self.format.size);
        image.assert_clean(&context);
        let seen = seen_by_library(image);
        if kernel_reads {
            let theirs = seen_by_kernel(self.format, image)?;
            theirs.assert_same(&seen, &format!("{context}, kernel / Lanefs"));
        }
        // debugfs cannot decrypt files and names, because it has no keys.
        if !home::is_encrypted(self.format.options) {
            let found = debugfs::differences(image, &seen);
            assert!(found.is_empty(), "{context}, debugfs / Lanefs:\n  {}", found.join("\n  "));
        }
        Some(seen)
    }

    fn assert_same_tree(&self, a: Listing, b: Listing, what: &str) {
        let context = format!("mke2fs {} {}: {what}", self.format.options, self.format.size);
        a.content().assert_same(&b.content(), &context);
    }
}

/// Runs operations on a kernel mount of the image. Returns `None` and prints the reason if this
/// machine cannot mount images.
///
/// # Panics
/// If an operation fails.
pub fn run_on_kernel(format: Format, image: &Image, ops: &[Op]) -> Option<()> {
    let mount = image.kernel_mount_as(format.kernel_type(), "noatime")?;
    let dir = home::of_kernel(mount.path())?;
    run_all(&mut kernel::Kernel::new(&dir), "the kernel", ops);
    mount.unmount();
    Some(())
}

/// Runs operations with Lanefs.
///
/// # Panics
/// If an operation fails.
pub fn run_on_library(image: &Image, ops: &[Op]) {
    let mount = open(image);
    run_all(&mut Library::new(mount.fs()), "Lanefs", ops);
    mount.close().expect("Lanefs unmounts it");
}

/// Returns the tree that the kernel shows. Returns `None` under the same conditions as
/// [`run_on_kernel`].
///
/// # Panics
/// If the kernel fails to read something.
pub fn seen_by_kernel(format: Format, image: &Image) -> Option<Listing> {
    let mount = image.kernel_mount_as(format.kernel_type(), "ro")?;
    let dir = home::of_kernel(mount.path())?;
    let listing = listing::of_kernel(&dir).expect("the kernel reads everything");
    mount.unmount();
    Some(listing)
}

/// Returns the tree that Lanefs shows on a read-only mount.
///
/// # Panics
/// If Lanefs fails to read something.
pub fn seen_by_library(image: &Image) -> Listing {
    let opened = FileDevice::open(image.path(), DeviceAccess::ReadOnly, OpenOptions::default());
    let device = Arc::new(opened.expect("the image opens"));
    let options = MountOptions { access: Access::ReadOnly, ..home::options() };
    let mount = Mount::open(device, options).expect("Lanefs mounts it read-only");
    listing::of_library(mount.fs())
        .unwrap_or_else(|(path, error)| panic!("{}: {error}", show(&path)))
}
