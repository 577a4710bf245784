//! The rules of xattr(7): which extended attributes a caller may read, change and list.

use super::set_id::STICKY;
use crate::credentials::Credentials;
use lanefs_ext4::flags::check_xattrs;
use lanefs_ext4::{Attr, Error};
use lanefs_ondisk::FileType;

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// The operation on an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Set,
    Remove,
}

/// The decision that is made before the mode and the access list of the inode are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Allowed,
    /// The mode and the access control list decide, as for the data.
    AsData,
    Hidden,
    Denied,
    /// The attribute cannot exist, so removing it has no effect and is not an error.
    Nothing,
    /// An inode of this type cannot have such an attribute.
    Impossible,
}

fn by_name(who: &Credentials, attr: &Attr, name: &[u8], what: Use) -> Rule {
    let refused = if what == Use::Read { Rule::Hidden } else { Rule::Denied };
    if name.starts_with(b"trusted.") {
        return if who.is_superuser() { Rule::Allowed } else { refused };
    }
    if name.starts_with(b"user.") {
        // The mode of a link, device, pipe or socket does not say who may store data in the file
        // system, so `user.` attributes of these are refused.
        if !matches!(attr.file_type, FileType::Regular | FileType::Directory) {
            return refused;
        }
        let sticky = attr.file_type == FileType::Directory && attr.permissions & STICKY != 0;
        if what != Use::Read && sticky && !who.owns(attr.uid) {
            return Rule::Denied;
        }
        return Rule::AsData;
    }
    if what == Use::Read {
        return Rule::Allowed;
    }
    if name == DEFAULT_LIST && attr.file_type != FileType::Directory {
        return if what == Use::Remove { Rule::Nothing } else { Rule::Impossible };
    }
    let allowed =
        if name.starts_with(b"security.") { who.is_superuser() } else { who.owns(attr.uid) };
    if allowed { Rule::Allowed } else { Rule::Denied }
}

/// Returns the rule for the attribute `name` of an inode with `attr`.
///
/// # Errors
/// [`Error::NotPermitted`] if the inode's flags forbid a change of attributes.
pub(crate) fn on_xattr(
    who: &Credentials,
    attr: &Attr,
    name: &[u8],
    what: Use,
) -> Result<Rule, Error> {
    if what != Use::Read {
        check_xattrs(&attr.rights())?;
    }
    Ok(by_name(who, attr, name, what))
}

/// Returns whether a caller may see the name. Only the superuser may see names that start with
/// `trusted.`.
pub fn is_listed(name: &[u8], superuser: bool) -> bool {
    superuser || !name.starts_with(b"trusted.")
}

/// Returns whether the attribute is an access control list.
pub fn is_list(name: &[u8]) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST
}

/// Returns whether the attribute is the access list. If this list is set, the mode changes with it.
pub fn is_access_list(name: &[u8]) -> bool {
    name == ACCESS_LIST
}

#[cfg(test)]
mod tests;
