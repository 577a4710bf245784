use super::*;

fn support_of(compat: Compat, incompat: Incompat, ro_compat: RoCompat) -> Support {
    Features { compat, incompat, ro_compat }.support()
}

#[test]
fn todays_default_features_are_writable() {
    let features = Features {
        compat: Compat::from_bits_retain(0x103c),
        incompat: Incompat::from_bits_retain(0x22c2 | 0x4),
        ro_compat: RoCompat::from_bits_retain(0x1046b),
    };
    assert_eq!(features.support(), Support::ReadWrite);
}

#[test]
fn unreadable_features_are_refused_by_name() {
    for flag in [Incompat::COMPRESSION, Incompat::JOURNAL_DEV, Incompat::DIRDATA] {
        let name = Features::incompat(flag).names().remove(0);
        let got = support_of(Compat::empty(), flag | Incompat::FILETYPE, RoCompat::QUOTA);
        assert_eq!(got, Support::Refused(vec![name]));
    }
}

#[test]
fn read_only_features_are_named() {
    let got = support_of(
        Compat::FAST_COMMIT,
        Incompat::MMP | Incompat::EXTENTS,
        RoCompat::REPLICA | RoCompat::QUOTA | RoCompat::SHARED_BLOCKS | RoCompat::LARGE_FILE,
    );
    let names = ["replica", "shared_blocks"].map(str::to_string);
    assert_eq!(got, Support::ReadOnly(names.to_vec()));
}

#[test]
fn unknown_features_have_the_names_that_dumpe2fs_prints() {
    let bit = 1 << 29;
    assert_eq!(
        support_of(Compat::from_bits_retain(bit), Incompat::empty(), RoCompat::empty()),
        Support::ReadWrite
    );
    assert_eq!(
        support_of(Compat::empty(), Incompat::from_bits_retain(bit), RoCompat::empty()),
        Support::Refused(vec!["FEATURE_I29".into()])
    );
    assert_eq!(
        support_of(Compat::empty(), Incompat::empty(), RoCompat::from_bits_retain(bit)),
        Support::ReadOnly(vec!["FEATURE_R29".into()])
    );
}
