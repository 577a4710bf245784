//! Images built from trees, tables and archives.

mod archive;
mod image;

mod bytes;
mod hostile;
mod layers;
mod progress;
mod sources;
mod tables;
mod tars;
mod verity;
