//! POSIX access control lists, as ext4 keeps them in an extended attribute and as Linux passes them.

use thiserror::Error;

/// What can be wrong here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {}
