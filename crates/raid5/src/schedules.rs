//! Chooses the schedules of a model.

/// Runs `model` on `schedules` schedules of each kind, or on the number of schedules in
/// `LANEFS_SCHEDULES`. One kind chooses each step at random: it finds errors that happen when few
/// steps of other threads come between two steps of a thread. The other has priorities that change
/// at two or three places: it finds errors that happen when many steps come between.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let given = std::env::var("LANEFS_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = given.unwrap_or(schedules);
    shuttle::check_random(model.clone(), schedules);
    for changes in [2, 3] {
        shuttle::check_pct(model.clone(), schedules, changes);
    }
}
