//! Runs the same operations with the kernel's ext4 and with Lanefs.

use crate::home;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::library::Library;
use crate::listing::{self, Listing};
use crate::op::{Op, Tree, show};
use lanefs_ext4::{Atime, Mount, MountOptions};

/// Runs all operations. `by` names the file system in messages.
///
/// # Panics
/// If an operation fails.
pub fn run_all(tree: &mut dyn Tree, by: &str, ops: &[Op]) {
    for op in ops {
        if let Err(errno) = tree.apply(op) {
            panic!("{by}: {op:?}: {}", std::io::Error::from_raw_os_error(errno));
        }
    }
}

/// Runs the operations with the kernel's ext4, and returns the resulting tree; `None` if the
/// machine cannot mount the image.
pub fn by_kernel(image: &Image, ops: &[Op]) -> Option<Listing> {
    let mount = image.kernel_mount("noatime")?;
    let dir = home::of_kernel(mount.path())?;
    run_all(&mut Kernel::new(&dir), "the kernel", ops);
    let listing = listing::of_kernel(&dir).expect("the kernel reads everything");
    mount.unmount();
    Some(listing)
}

/// Runs the operations with Lanefs, and returns the resulting tree.
pub fn by_library(image: &Image, ops: &[Op]) -> Listing {
    let mount = open(image);
    run_all(&mut Library::new(mount.fs()), "Lanefs", ops);
    let listing = listing::of_library(mount.fs())
        .unwrap_or_else(|(path, error)| panic!("{}: {error}", show(&path)));
    mount.close().expect("Lanefs unmounts it");
    listing
}

/// Mounts the image with Lanefs and the option `noatime`, so that reads do not update access times.
pub fn open(image: &Image) -> Mount {
    let options = MountOptions { atime: Atime::Noatime, ..home::options() };
    Mount::open(image.device(), options).expect("Lanefs mounts it")
}
