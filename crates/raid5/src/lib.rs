//! RAID-5 in Linux md's own format: a block device made of block devices.
#![forbid(unsafe_code)]

mod layout;
mod plan;
mod record;
mod slots;

pub use layout::{BLOCK, Geometry, GeometryError, Layout, Place};
pub use plan::{Band, Method, Missing, Plan, Trust, plan};
pub use record::Record;
pub use slots::Slots;
