//! Nodes of the extent tree.

use thiserror::Error;

/// What can be wrong here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {}
