//! The image file, device or array on which a file system is made.

use super::arguments::Arguments;
use crate::cli::{Failure, counted, human, open_image, refuse_contents};
use lanefs::Source;
use lanefs_device::{Access, Device, FileDevice, OpenError, OpenOptions};
use lanefs_mkfs::{MkfsError, MkfsOptions, Report as Made};
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn refuse_overwriting(
    arguments: &Arguments,
    device: &dyn Device,
) -> Result<(), Failure> {
    match arguments.force {
        true => Ok(()),
        false => refuse_contents(arguments.image.display(), device),
    }
}

pub(super) fn whole_of(arguments: &Arguments) -> OpenOptions {
    OpenOptions { offset: arguments.offset(), ..OpenOptions::default() }
}

/// Takes stride and stripe width from the array that holds the file system, unless options give
/// them.
pub(super) fn fit_to_rows(options: &mut MkfsOptions, source: &Source) {
    let Some(array) = source.array() else { return };
    let size = options.size.unwrap_or(array.len());
    let block = options.block_size_for(size).map_or(4096, |size| size.bytes() as u64);
    let shape = array.array().geometry();
    if options.stride == 0 {
        options.stride = u16::try_from(shape.chunk() / block).unwrap_or(0);
    }
    if options.stripe_width == 0 {
        options.stripe_width = u32::try_from(shape.row_len() / block).unwrap_or(0);
    }
}

pub(super) fn open(arguments: &Arguments, len: Option<u64>) -> Result<FileDevice, Failure> {
    let part = OpenOptions { len, ..whole_of(arguments) };
    Ok(open_image(&arguments.image, Access::ReadWrite, part)?)
}

/// Opens the part of the image for a file system of `size` bytes. Extends an image file that is too
/// short, if `check` accepts the size. A size that reaches beyond a partition is refused first.
pub(super) fn open_for(
    arguments: &Arguments,
    size: Option<u64>,
    check: impl FnOnce(u64) -> Result<(), MkfsError>,
) -> Result<FileDevice, Failure> {
    let path = arguments.image.as_path();
    let part = OpenOptions { len: size, ..whole_of(arguments) };
    match open_image(path, Access::ReadWrite, part) {
        Err(OpenError::OutOfRange { .. }) if path.is_file() && !arguments.dry_run => {
            // A file that is refused keeps its length.
            if let Ok(found) = open(arguments, None)
                && found.len() > 0
            {
                refuse_overwriting(arguments, &found)?;
            }
            check(size.unwrap_or(0)).map_err(Failure::about(path))?;
            // The file is open, and so locked, while it is extended.
            let whole = open_image(path, Access::ReadWrite, OpenOptions::default())?;
            let end = arguments.offset().saturating_add(size.unwrap_or(0));
            if whole.len() < end {
                whole.lengthen(end).map_err(Failure::about(path))?;
            }
            drop(whole);
            open(arguments, size)
        }
        opened => Ok(opened?),
    }
}

/// Returns the lines that describe the new file system.
pub(super) fn summary(arguments: &Arguments, made: &Made) -> Vec<String> {
    let journal = match made.journal_blocks {
        0 => "no journal".into(),
        blocks => format!("journal of {blocks} blocks"),
    };
    let mut lines = vec![format!(
        "{}: {} in {} blocks of {} bytes, {}, {} inodes, {journal}, UUID {}",
        arguments.image.display(),
        human(made.blocks * u64::from(made.block_size)),
        made.blocks,
        made.block_size,
        counted(made.groups.into(), "group"),
        made.inodes,
        uuid::Uuid::from_bytes(made.uuid),
    )];
    if arguments.verbose {
        lines.push(format!("features: {}", made.features.join(" ")));
    }
    lines
}

/// Describes the new file system as JSON.
pub(super) fn facts(image: &Path, made: &Made) -> Value {
    json!({
        "image": image.to_string_lossy(),
        "uuid": uuid::Uuid::from_bytes(made.uuid).to_string(),
        "bytes": made.blocks * u64::from(made.block_size),
        "block_size": made.block_size,
        "blocks": made.blocks,
        "free_blocks": made.free_blocks,
        "inodes": made.inodes,
        "journal_blocks": made.journal_blocks,
        "features": made.features,
    })
}
