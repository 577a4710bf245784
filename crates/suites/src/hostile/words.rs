//! Damage to single words of an image.

use super::check_image;
use super::exercise::Outcome;
use crate::image::Image;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The little-endian words of 32 bits in an image, at any byte offset.
pub struct Words<'a> {
    image: &'a Image,
    file: File,
}

impl<'a> Words<'a> {
    /// Opens the image.
    pub fn of(image: &'a Image) -> Words<'a> {
        let file = File::options().read(true).write(true).open(image.path());
        Words { image, file: file.expect("the image opens") }
    }

    /// Reads a word.
    pub fn get(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.file.read_exact_at(&mut word, at).expect("inside the image");
        u32::from_le_bytes(word)
    }

    /// Writes a word; returns the old one.
    pub fn put(&self, at: u64, word: u32) -> u32 {
        let before = self.get(at);
        self.file.write_all_at(&word.to_le_bytes(), at).expect("inside the image");
        before
    }

    /// Runs all operations while the image has these words, and then restores the old words.
    pub fn check(&self, what: &str, words: &[(u64, u32)]) -> Outcome {
        let before: Vec<_> = words.iter().map(|&(at, word)| (at, self.put(at, word))).collect();
        let outcome = check_image(self.image, what).unwrap_or_else(|why| panic!("{what}: {why}"));
        before.into_iter().rev().for_each(|(at, word)| {
            self.put(at, word);
        });
        outcome
    }
}
