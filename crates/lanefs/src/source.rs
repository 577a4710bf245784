//! The source of a file system: an image, a block device, or an array of them.

use crate::error::{Cause, Error, Result};
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_raid5::{ArrayOptions, OpenArray};
use std::path::Path;
use std::sync::Arc;

/// An open image, block device or array.
///
/// ```no_run
/// use lanefs::device::{Access, OpenOptions as Part};
/// use lanefs::{FileSystem, OpenOptions, Source};
///
/// let source = Source::open("md:a.img,b.img,c.img", Access::ReadWrite, Part::default())?;
/// source.notes().iter().for_each(|note| eprintln!("{note}"));
/// let fs = FileSystem::open_source(source, &OpenOptions::new())?;
/// # Ok::<(), lanefs::Error>(())
/// ```
#[derive(Debug)]
pub enum Source {
    /// A file or block device, or a part of one.
    Image(Arc<FileDevice>),
    /// A RAID-5 array.
    Array(Arc<OpenArray>),
}

impl Source {
    /// Opens the source `name`: the path of an image or block device, `PATH@WHICH` for a partition
    /// of a disk, or the name of an array. WHICH is a number, `name=`, `label=`, `uuid=`,
    /// `partuuid=`, or `root`, which is the partition of that type or else the only ext4. An array is `md:MEMBER,MEMBER,...` in any order, with `missing` for a missing member. `md:UUID`
    /// searches the host's block devices for the members. `md:UUID,DIRECTORY` searches a directory
    /// for them.
    ///
    /// # Errors
    /// [`Cause::Open`] or [`Cause::Array`].
    pub fn open(name: impl AsRef<Path>, access: Access, part: OpenOptions) -> Result<Source> {
        Source::open_with(name, part, ArrayOptions::new(access))
    }

    /// Works like [`Source::open`]. For an image, the access is the only part of `options` that has
    /// an effect.
    ///
    /// # Errors
    /// [`Cause::Open`] or [`Cause::Array`].
    pub fn open_with(
        name: impl AsRef<Path>,
        part: OpenOptions,
        options: ArrayOptions,
    ) -> Result<Source> {
        let name = name.as_ref();
        let Some(array) = Source::array_name(name) else {
            return Ok(Source::Image(Arc::new(FileDevice::open(name, options.access, part)?)));
        };
        let whole = part.offset == 0 && part.len.is_none();
        let open = || match whole {
            true => array.open(options),
            false => Err(lanefs_raid5::InvalidRequest::PartOfArray.into()),
        };
        Ok(Source::Array(Arc::new(open()?)))
    }

    /// Parses `name` as the name of an array; `None` if it has another form.
    pub fn array_name(name: &Path) -> Option<lanefs_raid5::Source> {
        lanefs_raid5::Source::parse(name.as_os_str())
    }

    /// Returns the device.
    pub fn device(&self) -> Arc<dyn Device> {
        match self {
            Source::Image(device) => device.clone(),
            Source::Array(array) => array.clone(),
        }
    }

    /// Returns the array, if the source is an array.
    pub fn array(&self) -> Option<&OpenArray> {
        match self {
            Source::Image(_) => None,
            Source::Array(array) => Some(array),
        }
    }

    /// Returns notes for the user: each unused member of an array, the partition that was picked,
    /// a damaged partition table.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Source::Image(device) => device.notes().to_vec(),
            Source::Array(array) => {
                array.left_out().iter().map(|out| format!("left out: {out}")).collect()
            }
        }
    }

    /// Marks an array clean. The file system on it must be closed first.
    ///
    /// # Errors
    /// [`Cause::Array`] if a member fails.
    pub fn close(self) -> Result<()> {
        let Source::Array(array) = self else { return Ok(()) };
        // If there is another reference to the array, the array is closed when the last reference
        // is dropped.
        match Arc::into_inner(array).map(OpenArray::close) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(Error::from(lanefs_raid5::AssembleError::from(error))),
        }
    }
}

impl From<lanefs_raid5::AssembleError> for Cause {
    fn from(error: lanefs_raid5::AssembleError) -> Cause {
        match error {
            // A member that cannot be opened is reported like an image that cannot be opened.
            lanefs_raid5::AssembleError::Open(error) => Cause::Open(error),
            error => Cause::Array(Box::new(error)),
        }
    }
}
