//! Runs cases: brings up what each needs, measures, and takes it down again.

mod backlog;
mod endpoints;
mod isolation;
mod outbox;

use std::path::PathBuf;

use crate::cases::{Baseline, Case, CaseKind, Endpoints, Publish, Store};
use crate::child::{Forwarder, Sink};
use crate::device::Device;
use crate::disk;
use crate::figures::Figures;
use crate::limits::{CONNECTIONS, HOT_KEY_EVENTS, STRETCH_EVENTS, SYNCS};
use crate::load::plan::{Form, Keys, Plan};
use crate::load::request::type_name;
use crate::measure::{MeasuredEndpoints, MeasuredProcesses, Scale};
use crate::postgres::Postgres;
use crate::progress::Progress;
use crate::server::{ADMIN_KEY, Server};
use crate::sink::SinkCommand;

/// The tenant that every server has from its first start.
const TENANT: &str = "default";

/// What a run has in common.
pub(crate) struct Bench {
    pub(crate) scale: Scale,
    pub(crate) progress: Progress,
    /// Where the stores' files are.
    folder: PathBuf,
    /// The binary that is measured, or why there is none.
    railpost: Result<PathBuf, String>,
    /// Started when the first case needs it.
    postgres: Option<Result<Postgres, String>>,
    /// The same for the server of the application whose outbox is relayed.
    source_postgres: Option<Result<Postgres, String>>,
    servers: u32,
    sources: u32,
}

/// Why a case has no figures.
#[derive(Debug)]
pub(crate) enum CaseError {
    /// Something is not there that it needs.
    Missing(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for CaseError {
    fn from(problem: String) -> Self {
        Self::Failed(problem)
    }
}

/// A server and what it stores in.
struct RunningServer {
    server: Server,
    postgres: Option<u32>,
}

impl Bench {
    pub(crate) fn new(
        scale: Scale,
        progress: Progress,
        folder: PathBuf,
        railpost: Result<PathBuf, String>,
    ) -> Self {
        let (postgres, source_postgres) = (None, None);
        Self {
            scale,
            progress,
            folder,
            railpost,
            postgres,
            source_postgres,
            servers: 0,
            sources: 0,
        }
    }

    pub(crate) fn run(&mut self, case: &Case) -> Result<Figures, CaseError> {
        match case.kind {
            CaseKind::Disk { per_s } => self.disk(per_s).map_err(CaseError::Failed),
            CaseKind::Baseline(floor) => self.floor(floor).map_err(CaseError::Failed),
            CaseKind::Publish(publish) => self.publish(publish),
            CaseKind::Hanging { hangs, per_s } => self.hanging(hangs, per_s),
            CaseKind::Tenants { noisy } => self.tenants(noisy),
            CaseKind::Backlog => self.backlog(),
            CaseKind::Endpoints => self.endpoints(),
            CaseKind::Outbox(case) => self.outbox(case),
        }
    }

    fn disk(&self, per_s: Option<u64>) -> Result<Figures, String> {
        let took = disk::syncs(&self.folder, SYNCS, per_s)?;
        let (p50_us, p99_us) = (took.quantile(0.5), took.quantile(0.99));
        Ok(Figures { p50_us, p99_us, ..Figures::default() })
    }

    fn floor(&self, floor: Baseline) -> Result<Figures, String> {
        let mut sink = Sink::start(1)?;
        let sink_port = sink.ports[0];
        let forwarder = floor.forwarded.then(|| Forwarder::start(sink_port)).transpose()?;
        let port = forwarder.as_ref().map_or(sink_port, |forwarder| forwarder.port);
        let plan = Plan {
            form: Form::Bare,
            payload_bytes: floor.payload_bytes,
            keys: Keys::None,
            connections: floor.connections,
            per_s: floor.per_s,
            token: None,
            ..plan(format!("127.0.0.1:{port}"), vec!["/".to_owned()])
        };
        let server = forwarder.as_ref().map(Forwarder::pid);
        self.stage(&mut sink, server, None).measure(&[plan], &one_endpoint())
    }

    fn publish(&mut self, publish: Publish) -> Result<Figures, CaseError> {
        let running = self.server(publish.store)?;
        let (count, types, deliveries_per_event) = match publish.endpoints {
            Endpoints::OneOf(count) => (count, count, 1),
            Endpoints::AllOf(count) => (count, 1, u64::from(count)),
        };
        let mut sink = Sink::start(count as usize)?;
        for endpoint in 0..count {
            let types = vec![type_name(u64::from(endpoint % types))];
            subscribe(&running.server, &mut sink, endpoint as usize, TENANT, &types)?;
        }
        let plan = Plan { types, ..publish_plan(&running.server, &publish) };
        let judged = MeasuredEndpoints { endpoints: 0..count as usize, deliveries_per_event };
        Ok(self.stage_of(&running, &mut sink).measure(&[plan], &judged)?)
    }

    /// Starts a server with an empty store.
    fn server(&mut self, store: Store) -> Result<RunningServer, CaseError> {
        let program = self.railpost.clone().map_err(CaseError::Missing)?;
        self.servers += 1;
        let folder = self.folder.join(format!("server-{}", self.servers));
        let sqlite = || format!("sqlite:{}", folder.join("railpost.db").display());
        let (url, postgres) = match store {
            Store::Sqlite => (sqlite(), None),
            Store::Memory => ("memory:".to_owned(), None),
            Store::Postgres => self.database().map(|(url, pid)| (url, Some(pid)))?,
        };
        let server = Server::start(&program, &folder, &url)?;
        Ok(RunningServer { server, postgres })
    }

    /// An empty database and the process of the server that has it.
    fn database(&mut self) -> Result<(String, u32), CaseError> {
        let folder = &self.folder;
        let started = self.postgres.get_or_insert_with(|| Postgres::start(folder, "postgres", ""));
        let postgres = started.as_ref().map_err(|problem| CaseError::Missing(problem.clone()))?;
        Ok((postgres.database(&format!("bench_{}", self.servers))?, postgres.pid()))
    }

    fn stage<'a>(
        &'a self,
        sink: &'a mut Sink,
        server: Option<u32>,
        postgres: Option<u32>,
    ) -> MeasuredProcesses<'a> {
        let device = server.and_then(|_| Device::of(&self.folder));
        MeasuredProcesses {
            scale: self.scale,
            progress: &self.progress,
            sink,
            server,
            postgres,
            device,
        }
    }

    fn stage_of<'a>(
        &'a self,
        running: &RunningServer,
        sink: &'a mut Sink,
    ) -> MeasuredProcesses<'a> {
        self.stage(sink, Some(running.server.pid()), running.postgres)
    }
}

fn one_endpoint() -> MeasuredEndpoints {
    MeasuredEndpoints { endpoints: 0..1, deliveries_per_event: 1 }
}

/// Makes a port of the sink an endpoint, and lets the sink verify with its secret.
fn subscribe(
    server: &Server,
    sink: &mut Sink,
    endpoint: usize,
    tenant: &str,
    types: &[String],
) -> Result<(), String> {
    let secret = server.create_endpoint(tenant, sink.ports[endpoint], types)?;
    sink.command(&SinkCommand::Verify { endpoint, secret })
}

/// Single events for one tenant at full load; cases change what they vary.
fn plan(address: String, paths: Vec<String>) -> Plan {
    Plan {
        address,
        paths,
        token: Some(ADMIN_KEY.to_owned()),
        form: Form::Single,
        payload_bytes: crate::cases::PLAIN.payload_bytes,
        keys: crate::cases::PLAIN.keys,
        types: 1,
        first_type: 0,
        connections: CONNECTIONS,
        per_s: None,
        first: 0,
        events: STRETCH_EVENTS,
        millis: 0,
    }
}

fn publish_plan(server: &Server, publish: &Publish) -> Plan {
    let hot = publish.keys == Keys::Hot;
    Plan {
        form: publish.form,
        payload_bytes: publish.payload_bytes,
        keys: publish.keys,
        connections: publish.connections(),
        per_s: publish.per_s,
        events: if hot { HOT_KEY_EVENTS } else { STRETCH_EVENTS },
        ..plan(server.address.clone(), vec![path(TENANT, publish.form)])
    }
}

fn path(tenant: &str, form: Form) -> String {
    format!("/v1/tenants/{tenant}/{}", form.route())
}
