//! A server with many endpoints and nothing to send: how soon it is ready again, and in how much memory.

use std::time::Instant;

use super::{Bench, CaseError};
use crate::cases::Store;
use crate::figures::Figures;
use crate::limits::{ENDPOINTS, ENDPOINTS_PER_TENANT};
use crate::load::request::type_name;
use crate::proc::Usage;

impl Bench {
    pub(super) fn endpoints(&mut self) -> Result<Figures, CaseError> {
        let mut server = self.server(Store::Sqlite)?.server;
        let types = vec![type_name(0)];
        for number in 0..self.scale.events(ENDPOINTS) {
            let tenant = format!("tenant-{}", number / ENDPOINTS_PER_TENANT);
            if number % ENDPOINTS_PER_TENANT == 0 {
                self.progress.say(&format!("creating endpoints, {number} so far"));
                server.create_tenant(&tenant)?;
            }
            let url = format!("https://receiver-{number}.example.com/hooks/{number}");
            server.create_endpoint_at(&tenant, &url, &types)?;
        }
        server.crash();
        let begun = Instant::now();
        server.restart()?;
        server.wait_until_ready()?;
        let ready_ms = Some(begun.elapsed().as_secs_f64() * 1e3);
        let peak_bytes = Some(Usage::of(server.pid()).peak_bytes);
        Ok(Figures { ready_ms, peak_bytes, ..Figures::default() })
    }
}
