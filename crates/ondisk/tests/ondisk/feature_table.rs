//! Checks that the table of features in docs/ondisk.md agrees with the code.

use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat, Support};
use std::collections::BTreeMap;

/// Maps each feature in the first column of the table to the text in the second column. The first
/// column has names of features, separated by commas; other words in it are ignored.
fn documented() -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ondisk.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once("## Which features are supported?").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut found = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let names = cells[1].split(", ").filter(|name| Features::by_name(name).is_some());
        for name in names {
            let before = found.insert(name.to_string(), cells[2].to_string());
            assert_eq!(before, None, "{name} has two rows");
        }
    }
    found
}

/// Returns the name of each known feature, with the set that contains only this feature.
fn known() -> Vec<(String, Features)> {
    let none = Features::default();
    let words = (0..32).flat_map(|bit| {
        let bit = 1 << bit;
        [
            Features { compat: Compat::from_bits_retain(bit), ..none },
            Features { incompat: Incompat::from_bits_retain(bit), ..none },
            Features { ro_compat: RoCompat::from_bits_retain(bit), ..none },
        ]
    });
    let named = words.map(|feature| (feature.names().concat(), feature));
    named.filter(|(name, _)| Features::by_name(name).is_some()).collect()
}

#[test]
fn the_table_of_features_says_what_the_code_does() {
    let mut documented = documented();
    for (name, feature) in known() {
        let said = documented.remove(&name).unwrap_or_else(|| panic!("{name} is in no row"));
        let does = match feature.support() {
            Support::ReadWrite => ["read and written", "written as usual", "ignored"].as_slice(),
            Support::ReadOnly(_) => &["read-only"],
            Support::Refused(_) => &["refused by name"],
        };
        assert!(does.iter().any(|does| said.starts_with(does)), "{name}: {said}, not {does:?}");
    }
    assert_eq!(documented, BTreeMap::new(), "features without code");
}
