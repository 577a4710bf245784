//! Owners in the syntax of chown(1): `USER`, `USER:GROUP`, `USER:`, `:GROUP`.

use super::names::UserNames;
use std::str::FromStr;

/// The new owner of a file; names are not looked up yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerChange {
    user: Option<String>,
    group: Option<String>,
}

impl FromStr for OwnerChange {
    type Err = String;
    fn from_str(text: &str) -> Result<OwnerChange, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let given = |part: &str| (!part.is_empty()).then(|| part.to_owned());
        match (given(user), given(group)) {
            (None, None) => Err(format!("'{text}' names neither a user nor a group")),
            (user, group) => Ok(OwnerChange { user, group }),
        }
    }
}

impl OwnerChange {
    /// Returns the user ID and the group ID; `None` means that the owner or the group stays
    /// unchanged.
    pub fn resolve(&self, names: &UserNames) -> Result<(Option<u32>, Option<u32>), String> {
        let uid = self.user.as_deref().map(|user| names.uid(user)).transpose()?;
        let gid = self.group.as_deref().map(|group| names.gid(group)).transpose()?;
        Ok((uid, gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Option<String>, Option<String>) {
        let owner: OwnerChange = text.parse().unwrap();
        (owner.user, owner.group)
    }

    #[test]
    fn either_part_may_be_missing() {
        assert_eq!(parts("ann"), (Some("ann".into()), None));
        assert_eq!(parts("ann:wheel"), (Some("ann".into()), Some("wheel".into())));
        assert_eq!(parts(":10"), (None, Some("10".into())));
        assert_eq!(parts("0:"), (Some("0".into()), None));
        assert!(":".parse::<OwnerChange>().is_err());
        assert!("".parse::<OwnerChange>().is_err());
    }
}
