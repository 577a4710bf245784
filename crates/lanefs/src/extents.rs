//! Where the blocks of files are on the device.

use crate::error::{At, Result};
use crate::filesystem::FileSystem;
use lanefs_ext4::FileExtent;
use lanefs_vfs::Follow;
use std::path::Path;

impl FileSystem {
    /// Returns the extents of the file or directory at `path` in ascending order, as FIEMAP does.
    /// They include space that is allocated beyond the end of the file.
    ///
    /// ```
    /// use lanefs::{ExtentFlags, FileSystem, Follow};
    ///
    /// # use lanefs::device::RamDevice;
    /// # use lanefs::{FormatOptions, OpenOptions};
    /// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
    /// # FileSystem::format(&*device, &FormatOptions::default())?;
    /// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
    /// fs.write("/f", [7; 5000])?;
    /// let extents = fs.extents("/f", Follow::Links)?;
    /// assert_eq!((extents[0].offset, extents[0].len), (0, 5 << 10)); // five blocks of 1 KiB
    /// assert_eq!(extents[0].flags, ExtentFlags::LAST);
    /// # Ok::<(), lanefs::Error>(())
    /// ```
    pub fn extents(&self, path: impl AsRef<Path>, follow: Follow) -> Result<Vec<FileExtent>> {
        let path = path.as_ref();
        let inode = self.find(path, follow)?;
        self.vfs().fs().extents(&inode).at(path)
    }
}
