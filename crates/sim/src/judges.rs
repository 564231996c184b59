//! All who judge a run, side by side.

use crate::applied::{Applied, Receivers};
use crate::fact::Fact;
use crate::health::HealthModel;
use crate::model::{BrokenPromise, Model, View};

#[derive(Default)]
pub(crate) struct Judges {
    model: Model,
    health: HealthModel,
    applied: Applied,
}

impl Judges {
    pub(crate) fn judge(&mut self, view: &View<'_>, fact: &Fact) -> Result<(), BrokenPromise> {
        self.applied.note(view.store, fact);
        self.model.judge(view, fact)?;
        self.health.judge(view, fact)
    }

    pub(crate) fn judge_idle(&self, view: &View<'_>) -> Result<(), BrokenPromise> {
        self.model.judge_idle(view)
    }

    pub(crate) fn judge_end(
        &self,
        view: &View<'_>,
        receivers: &Receivers<'_>,
    ) -> Result<(), BrokenPromise> {
        self.applied.judge(view.store, receivers)
    }
}
