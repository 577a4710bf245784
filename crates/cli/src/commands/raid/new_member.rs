//! Opens a device or file that is to become a member. Creates the file if it does not exist.
//! Refuses a device or file that holds data, unless the user gives `--force`.

use super::member_name::real;
use crate::cli::{Failure, MadeFile, open_image, refuse_contents, refuse_partition_name};
use lanefs::device::{Access, Device, OpenOptions};
use lanefs_ondisk::md::Role;
use lanefs_raid5::{Candidate, NewMember, OpenArray, Uuid};
use std::path::Path;
use std::sync::Arc;

/// Creates `path` if it does not exist. The file gets the length of the shortest member that is a
/// file, but at least the length that the array needs.
pub fn make_file(path: &Path, array: &OpenArray) -> Result<Option<MadeFile>, Failure> {
    // A path in /dev that does not exist is probably a typing mistake, so no file is created there.
    if path.symlink_metadata().is_ok() || path.starts_with("/dev/") && !path.starts_with("/dev/shm")
    {
        return Ok(None);
    }
    refuse_partition_name(path)?;
    let needed = array.needed_len().map_err(|error| Failure::new(path.display(), error))?;
    let lens = array.metadata().members().into_iter().filter_map(|member| {
        let file = member.name.metadata().ok()?;
        file.is_file().then_some(file.len())
    });
    let len = lens.min().unwrap_or(0).max(needed);
    MadeFile::create(path, len).map(Some).map_err(Failure::on_host(path))
}

/// Opens the device. A former member of this array is accepted without `force` if its slot is free.
pub fn new_member(path: &Path, array: &OpenArray, force: bool) -> Result<NewMember, Failure> {
    let members = array.metadata().members();
    let same = |known: &Path| real(known).is_some_and(|known| Some(known) == real(path));
    if members.iter().any(|known| known.slot.is_some() && same(&known.name)) {
        return Err(Failure::new(path.display(), "already a member of the array"));
    }
    let device = match array.metadata().unused(path) {
        Some(device) => device,
        None => {
            let device = open_image(path, Access::ReadWrite, OpenOptions::default())?;
            Arc::new(device.keeping_length()) as Arc<dyn Device>
        }
    };
    let set = array.metadata().array().set();
    let own = Candidate::read(path, device.clone()).ok();
    let own = own.map(|own| own.superblock).filter(|own| own.set() == set);
    let taken = own.as_ref().and_then(|own| match own.role() {
        Role::Active(slot) => Some(usize::from(slot)),
        Role::Spare | Role::Faulty | Role::Journal => None,
    });
    let taken = taken.filter(|slot| members.iter().any(|known| known.slot == Some(*slot)));
    if let Some(slot) = taken.filter(|_| !force) {
        let cause = format!(
            "it seems to be a copy of the member in slot {slot} of this array, which has one; \
             --force overwrites it"
        );
        return Err(Failure::new(path.display(), cause));
    }
    if !force && own.is_none() {
        refuse_contents(path.display(), &*device)?;
    }
    let uuid = Uuid(lanefs_mkfs::random_uuid());
    Ok(NewMember { name: path.into(), device, uuid })
}
