//! Checks that the library itself exports every type that occurs in its signatures, so that a
//! program can name the type.
//!
//! This program imports only from `lanefs`. The check is that it compiles.

use lanefs::device::{self, Device};
use lanefs::inode::{self, OpenFile, Vfs};
use lanefs::{
    Cause, Error, Ext4Error, File, FileOptions, FileSystem, FileTimes, FormatOptions, Metadata,
    OpenOptions, ReadDir, Source, fault, format, raid,
};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

type OfFileSystem = (
    fn(&'static Path, u64, &FormatOptions) -> Result<FileSystem, Error>,
    fn(&dyn Device, &FormatOptions) -> lanefs::Result<()>,
    fn(Source, &OpenOptions) -> lanefs::Result<FileSystem>,
    fn(Arc<dyn Device>, &OpenOptions) -> lanefs::Result<FileSystem>,
    fn(&FileSystem) -> &Vfs,
    fn(&FileSystem) -> Option<&Source>,
    fn(&FileSystem) -> &lanefs::Credentials,
    fn(&FileSystem) -> lanefs::StatFs,
    fn(&FileSystem) -> lanefs::Statistics,
    fn(&FileSystem, &'static Path, &FileOptions) -> lanefs::Result<File>,
    fn(&FileSystem, &'static Path) -> lanefs::Result<ReadDir>,
    fn(&FileSystem, &'static Path, &lanefs::NewNode<'_>) -> lanefs::Result<()>,
    fn(&FileSystem, &'static Path, &'static Path, lanefs::Rename) -> lanefs::Result<()>,
    fn(&FileSystem, &'static Path, &lanefs::SetAttr, lanefs::Follow) -> lanefs::Result<()>,
    fn(&FileSystem, &'static Path, FileTimes) -> lanefs::Result<()>,
);

#[test]
fn a_file_system_is_made_opened_and_used_by_names_of_the_library() {
    let _: OfFileSystem = (
        FileSystem::create,
        FileSystem::format,
        FileSystem::open_source,
        FileSystem::open_device,
        FileSystem::vfs,
        FileSystem::source,
        FileSystem::credentials,
        FileSystem::space,
        FileSystem::statistics,
        FileSystem::open_file_with,
        FileSystem::read_dir,
        FileSystem::create_node,
        FileSystem::rename_with,
        FileSystem::set_attr,
        FileSystem::set_times,
    );
}

type OfFiles = (
    fn(&File, lanefs::Fallocate, u64, u64) -> lanefs::Result<()>,
    fn(&File) -> &OpenFile,
    fn(&lanefs::DirEntry) -> lanefs::Ino,
    fn(&lanefs::DirEntry) -> lanefs::Result<lanefs::FileType>,
    fn(&Metadata) -> &lanefs::Attr,
    fn(&Metadata) -> lanefs::Rdev,
    fn(OpenOptions, lanefs::Atime) -> OpenOptions,
    fn(&'static Path, device::Access, device::OpenOptions) -> lanefs::Result<Source>,
    fn(&Path) -> Option<raid::ArrayName>,
    fn(&Source) -> Option<&raid::OpenArray>,
);

#[test]
fn files_options_and_sources_are_used_by_names_of_the_library() {
    let _: OfFiles = (
        File::fallocate,
        File::as_open_file,
        lanefs::DirEntry::ino,
        lanefs::DirEntry::file_type,
        Metadata::attr,
        Metadata::rdev,
        OpenOptions::atime,
        Source::open,
        Source::array_name,
        Source::array,
    );
}

#[test]
fn a_cause_is_matched_by_names_of_the_library() {
    fn device_failed(cause: &Cause) -> bool {
        match cause {
            Cause::FileSystem(Ext4Error::Device(device::DeviceError { .. }))
            | Cause::Open(device::OpenError::Io { .. })
            | Cause::Format(format::MkfsError::Device(_)) => true,
            Cause::Array(error) => matches!(
                **error,
                raid::AssembleError::Member { fault: raid::MemberFault::Device(_), .. }
            ),
            _ => false,
        }
    }
    assert!(!device_failed(&Cause::FilesOpen));
}

type OfTheFloorsBelow = (
    fn(&Vfs) -> &inode::Fs,
    fn(&Vfs) -> &inode::InodeRef,
    fn(&OpenFile) -> lanefs::OpenFlags,
    fn(&inode::Fs) -> inode::Superblock,
    fn(FormatOptions, lanefs::BlockSize) -> FormatOptions,
    fn(FormatOptions, format::Features) -> FormatOptions,
    fn(&lanefs::Statistics) -> &inode::JournalStatistics,
    fn(&lanefs::Statistics) -> &[inode::Contention],
);

#[test]
fn the_floors_below_are_used_by_names_of_the_library() {
    let _: OfTheFloorsBelow = (
        Vfs::fs,
        Vfs::root,
        OpenFile::flags,
        inode::Fs::superblock,
        FormatOptions::block_size,
        FormatOptions::features,
        |statistics| &statistics.journal,
        |statistics| &statistics.locks,
    );
}

#[test]
fn options_and_errors_are_made_by_names_of_the_library() {
    let options = raid::ArrayOptions {
        dirty_and_degraded: raid::DirtyAndDegraded::Refuse,
        upkeep: raid::Upkeep::Background,
        policies: raid::Policies::default(),
        ..raid::ArrayOptions::new(device::Access::ReadOnly)
    };
    assert_eq!(options.access, device::Access::ReadOnly);
    let mut format = FormatOptions::new().label("x");
    format.tables = format::TablePlaces::ByGroup;
    format.inode_tables = format::InodeTables::Lazy;
    format.features.compat -= format::Compat::ORPHAN_FILE;
    let device = device::RamDevice::create(16 << 20).unwrap();
    FileSystem::format(&device, &format).unwrap();
    let verity = lanefs::NewVerity {
        algorithm: lanefs::VerityAlgorithm::Sha256,
        ..lanefs::NewVerity::default()
    };
    assert_eq!(verity, lanefs::NewVerity::default());
    let failed = device::DeviceError::new(device::Operation::Write, 0, 1, ErrorKind::Other);
    let cause = Cause::from(Ext4Error::Journal(fault::JournalError::Device(failed)));
    assert!(!matches!(cause, Cause::Open(device::OpenError::InUse { by: device::User::Lock, .. })));
}
