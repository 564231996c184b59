//! All who judge a run, side by side.

use crate::applied::{Applied, Receivers};
use crate::fact::Fact;
use crate::health::Health;
use crate::model::{Broken, Model, View};

#[derive(Default)]
pub(crate) struct Judges {
    model: Model,
    health: Health,
    applied: Applied,
}

impl Judges {
    pub(crate) fn judge(&mut self, view: &View<'_>, fact: &Fact) -> Result<(), Broken> {
        self.applied.note(view.store, fact);
        self.model.judge(view, fact)?;
        self.health.judge(view, fact)
    }

    pub(crate) fn judge_idle(&self, view: &View<'_>) -> Result<(), Broken> {
        self.model.judge_idle(view)
    }

    pub(crate) fn judge_end(
        &self,
        view: &View<'_>,
        receivers: &Receivers<'_>,
    ) -> Result<(), Broken> {
        self.applied.judge(view.store, receivers)
    }
}
