//! Changes access control lists. Each function computes the new list from the old one, and has no
//! side effects.

use crate::cli::{AclItem, Scope};
use lanefs_ondisk::acl::{Acl, AclEntry, Permissions, Tag};

/// A change of the lists of a file.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Entries that replace a whole list.
    pub set: Vec<AclItem>,
    pub modify: Vec<AclItem>,
    pub remove: Vec<AclItem>,
    /// Keep only the entries of the access list that correspond to the mode: owner, owning group
    /// and others.
    pub clear_access: bool,
    pub clear_default: bool,
    /// Do not compute the mask.
    pub keep_mask: bool,
}

impl Change {
    /// Returns whether any entry of the change is for the list of this scope.
    pub fn concerns(&self, scope: Scope) -> bool {
        let mut items = self.set.iter().chain(&self.modify).chain(&self.remove);
        items.any(|item| item.scope == scope)
    }

    /// Returns whether the change sets an entry of the default list.
    pub fn sets_default(&self) -> bool {
        self.set.iter().chain(&self.modify).any(|item| item.scope == Scope::Default)
    }

    /// Returns whether the change clears the access list or the default list.
    pub fn clears(&self) -> bool {
        self.clear_access || self.clear_default
    }

    /// Returns the new list, or `None` if the file's list is to be removed. A default list that
    /// lacks the required entries gets them from `access`.
    pub fn of(
        &self,
        scope: Scope,
        old: Option<&Acl>,
        access: &Acl,
        is_dir: bool,
    ) -> Result<Option<Acl>, String> {
        let clear = match scope {
            Scope::Access => self.clear_access,
            Scope::Default => self.clear_default,
        };
        let mut entries = old.map(|old| old.entries().to_vec()).unwrap_or_default();
        if clear {
            // After the mask is removed, the owning group must not have more permissions than the
            // mask allowed.
            let mask = entries.iter().find(|entry| entry.tag == Tag::Mask).copied();
            entries.retain(|entry| scope == Scope::Access && is_base(entry.tag));
            for entry in &mut entries {
                if let (Tag::OwningGroup, Some(mask)) = (entry.tag, mask) {
                    entry.permissions = entry.permissions.intersection(mask.permissions);
                }
            }
        }
        if !self.concerns(scope) {
            return finish(entries);
        }
        let mine = |items: &[AclItem]| -> Vec<AclItem> {
            items.iter().filter(|item| item.scope == scope).copied().collect()
        };
        let (set, remove, modify) = (mine(&self.set), mine(&self.remove), mine(&self.modify));
        if !set.is_empty() {
            entries.clear();
        }
        for item in &remove {
            if is_base(item.tag) {
                return Err(
                    "the entries for owner, owning group and others cannot be removed".into()
                );
            }
            entries.retain(|entry| entry.tag != item.tag);
        }
        let any_executes = entries.iter().any(|e| e.permissions.contains(Permissions::EXECUTE));
        for item in set.iter().chain(&modify) {
            let mut permissions = item.permissions.unwrap_or(Permissions::NONE);
            if item.execute_if_any && (is_dir || any_executes) {
                permissions = permissions.union(Permissions::EXECUTE);
            }
            put(&mut entries, AclEntry { tag: item.tag, permissions });
        }
        if !entries.is_empty() {
            let missing = access.entries().iter().filter(|entry| is_base(entry.tag));
            for base in missing {
                if !entries.iter().any(|entry| entry.tag == base.tag) {
                    put(&mut entries, *base);
                }
            }
        }
        let is_given = set.iter().chain(&modify).any(|item| item.tag == Tag::Mask);
        let mask_removed = remove.iter().any(|item| item.tag == Tag::Mask);
        let has_named = entries.iter().any(|e| matches!(e.tag, Tag::User(_) | Tag::Group(_)));
        let has_mask = entries.iter().any(|entry| entry.tag == Tag::Mask);
        let needs_mask = has_named && !has_mask;
        let computes = !self.keep_mask && !is_given && !mask_removed && (has_named || has_mask);
        if needs_mask && !computes && !mask_removed {
            // Like setfacl(1): a mask that the list must have, but that is not computed, is the
            // entry of the owning group. Without a mask that was removed, the list is refused.
            let group = entries.iter().find(|entry| entry.tag == Tag::OwningGroup);
            let permissions = group.map_or(Permissions::NONE, |group| group.permissions);
            put(&mut entries, AclEntry { tag: Tag::Mask, permissions });
        }
        if computes {
            let class = entries.iter().filter(|entry| {
                matches!(entry.tag, Tag::User(_) | Tag::OwningGroup | Tag::Group(_))
            });
            let permissions =
                class.fold(Permissions::NONE, |sum, entry| sum.union(entry.permissions));
            put(&mut entries, AclEntry { tag: Tag::Mask, permissions });
        }
        finish(entries)
    }
}

fn is_base(tag: Tag) -> bool {
    matches!(tag, Tag::Owner | Tag::OwningGroup | Tag::Other)
}

fn put(entries: &mut Vec<AclEntry>, new: AclEntry) {
    match entries.iter_mut().find(|entry| entry.tag == new.tag) {
        Some(entry) => *entry = new,
        None => entries.push(new),
    }
}

fn finish(entries: Vec<AclEntry>) -> Result<Option<Acl>, String> {
    if entries.is_empty() {
        return Ok(None);
    }
    Acl::from_unordered(entries).map(Some).map_err(|cause| cause.to_string())
}
