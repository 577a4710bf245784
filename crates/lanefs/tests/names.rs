//! Checks that the library itself exports every type that occurs in its signatures, so that a
//! program can name the type.
//!
//! This program imports only from `lanefs`. The check is that it compiles.

use lanefs::{
    Cause, Error, File, FileOptions, FileSystem, FileTimes, FormatOptions, Metadata, OpenOptions,
    ReadDir, Source, device, ext4, journal, lanes, mkfs, ondisk, raid5, vfs,
};
use std::path::Path;
use std::sync::Arc;

type OfFileSystem = (
    fn(&'static Path, u64, &FormatOptions) -> Result<FileSystem, Error>,
    fn(&dyn device::Device, &FormatOptions) -> lanefs::Result<()>,
    fn(Source, &OpenOptions) -> lanefs::Result<FileSystem>,
    fn(Arc<dyn device::Device>, &OpenOptions) -> lanefs::Result<FileSystem>,
    fn(&FileSystem) -> &vfs::Vfs,
    fn(&FileSystem) -> Option<&Source>,
    fn(&FileSystem) -> &vfs::Credentials,
    fn(&FileSystem) -> ext4::StatFs,
    fn(&FileSystem) -> ext4::Statistics,
    fn(&FileSystem, &'static Path, &FileOptions) -> lanefs::Result<File>,
    fn(&FileSystem, &'static Path) -> lanefs::Result<ReadDir>,
    fn(&FileSystem, &'static Path, &vfs::NewNode<'_>) -> lanefs::Result<()>,
    fn(&FileSystem, &'static Path, &'static Path, ext4::Rename) -> lanefs::Result<()>,
    fn(&FileSystem, &'static Path, &ext4::SetAttr, vfs::Follow) -> lanefs::Result<()>,
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
    fn(&File, ext4::Fallocate, u64, u64) -> lanefs::Result<()>,
    fn(&File) -> &vfs::OpenFile,
    fn(&lanefs::DirEntry) -> ondisk::Ino,
    fn(&lanefs::DirEntry) -> Option<ondisk::FileType>,
    fn(&Metadata) -> &ext4::Attr,
    fn(&Metadata) -> ext4::Rdev,
    fn(OpenOptions, ext4::Atime) -> OpenOptions,
    fn(&'static Path, device::Access, device::OpenOptions) -> lanefs::Result<Source>,
    fn(&Path) -> Option<raid5::Source>,
    fn(&Source) -> Option<&raid5::OpenArray>,
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
            Cause::FileSystem(ext4::Error::Device(device::DeviceError { .. }))
            | Cause::Open(device::OpenError::Io { .. })
            | Cause::Format(mkfs::MkfsError::Device(_)) => true,
            Cause::Array(error) => matches!(
                **error,
                raid5::AssembleError::Member { fault: raid5::MemberFault::Device(_), .. }
            ),
            _ => false,
        }
    }
    assert!(!device_failed(&Cause::FilesOpen));
}

type OfTheFloorsBelow = (
    fn(&vfs::Vfs) -> &ext4::Fs,
    fn(&vfs::Vfs) -> &ext4::InodeRef,
    fn(&vfs::OpenFile) -> vfs::OpenFlags,
    fn(&ext4::Fs) -> ondisk::superblock::Superblock,
    fn(&FormatOptions) -> &Option<ondisk::BlockSize>,
    fn(&FormatOptions) -> &ondisk::features::Features,
    fn(&ext4::Statistics) -> &journal::Statistics,
    fn(&ext4::Statistics) -> &[lanes::Contention],
);

#[test]
fn the_floors_below_are_used_by_names_of_the_library() {
    let _: OfTheFloorsBelow = (
        vfs::Vfs::fs,
        vfs::Vfs::root,
        vfs::OpenFile::flags,
        ext4::Fs::superblock,
        |options| &options.block_size,
        |options| &options.features,
        |statistics| &statistics.journal,
        |statistics| &statistics.locks,
    );
}
