//! Whose requests are taken: by the client's network, and for the metrics by a token.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use railpost_api::{ClientAddress, Code, Problem, hash_of};
use railpost_dispatch::NamedNetwork;
use railpost_store::Digest;

use super::{StartError, failed};
use crate::config::ServerConfig;

/// Who may ask for what.
pub(super) struct Admission {
    api: AllowList,
    dashboard: AllowList,
    metrics: AllowList,
    metrics_token: Option<Digest>,
}

/// The networks whose clients are taken; none for all.
struct AllowList {
    field: &'static str,
    networks: Vec<NamedNetwork>,
}

/// What receivers and load balancers ask for, wherever they are.
const ALWAYS_OPEN: [&str; 3] = ["/health/", "/v1/egress", "/v1/thin/"];

impl Admission {
    pub(super) fn new(config: &ServerConfig) -> Result<Self, StartError> {
        let token = config.metrics_token.as_str();
        Ok(Self {
            api: AllowList::new("server.allow_api", &config.allow_api)?,
            dashboard: AllowList::new("server.allow_dashboard", &config.allow_dashboard)?,
            metrics: AllowList::new("server.allow_metrics", &config.allow_metrics)?,
            metrics_token: (!token.is_empty()).then(|| hash_of(token)),
        })
    }

    /// Whether a request for this path is taken from this client, and why not.
    pub(super) fn check(
        &self,
        path: &str,
        headers: &HeaderMap,
        client: ClientAddress,
    ) -> Result<(), Problem> {
        if path == "/metrics" {
            self.metrics.check(client)?;
            return self.check_token(headers);
        }
        if ALWAYS_OPEN.iter().any(|open| path.starts_with(open)) {
            return Ok(());
        }
        let is_page = path == "/" || path == "/dashboard" || path.starts_with("/dashboard/");
        if is_page { self.dashboard.check(client) } else { self.api.check(client) }
    }

    /// Digests are compared: how long that takes says nothing about the token.
    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(expected) = self.metrics_token else { return Ok(()) };
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = shown.and_then(|shown| {
            let (scheme, token) = shown.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token {
            Some(token) if hash_of(token) == expected => Ok(()),
            _ => {
                let detail = "the metrics need the header `Authorization: Bearer` with the token of \
                              `server.metrics_token`";
                Err(Problem::new(Code::Unauthorized, detail))
            }
        }
    }
}

impl AllowList {
    fn new(field: &'static str, networks: &[String]) -> Result<Self, StartError> {
        let network = |text: &String| NamedNetwork::new("network", text);
        let networks = networks.iter().map(network).collect::<Result<_, _>>();
        Ok(Self { field, networks: networks.map_err(|error| failed(field, error))? })
    }

    fn check(&self, ClientAddress(client): ClientAddress) -> Result<(), Problem> {
        if self.networks.is_empty() || self.networks.iter().any(|network| network.contains(client))
        {
            return Ok(());
        }
        let detail = format!("requests from {client} are not taken here: see `{}`", self.field);
        Err(Problem::new(Code::Forbidden, detail))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn admission() -> Admission {
        let networks = |text: &str| vec![text.to_owned()];
        Admission::new(&ServerConfig {
            allow_api: networks("10.1.0.0/16"),
            allow_dashboard: networks("10.2.0.0/16"),
            allow_metrics: networks("fd00::/8"),
            metrics_token: TOKEN.to_owned(),
            ..ServerConfig::default()
        })
        .unwrap()
    }

    fn code(admission: &Admission, path: &str, client: &str, authorization: &str) -> Option<Code> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        let client = ClientAddress(client.parse().unwrap());
        admission.check(path, &headers, client).err().map(|problem| problem.code)
    }

    #[test]
    fn each_list_is_for_its_own_paths() {
        let forbidden = Some(Code::Forbidden);
        for (path, api, dashboard, elsewhere) in [
            ("/v1/tenants", None, forbidden, forbidden),
            ("/docs", None, forbidden, forbidden),
            ("/v1/egress/", None, None, None),
            ("/dashboard", forbidden, None, forbidden),
            ("/dashboard/t/default/lanes", forbidden, None, forbidden),
            ("/", forbidden, None, forbidden),
            ("/dashboards", None, forbidden, forbidden),
            ("/health/ready", None, None, None),
            ("/v1/egress", None, None, None),
            ("/v1/thin/default/ep_1/evt_1", None, None, None),
            ("/metrics", forbidden, forbidden, forbidden),
        ] {
            let found = ["10.1.0.1", "10.2.0.1", "192.0.2.1"]
                .map(|client| code(&admission(), path, client, "none"));
            assert_eq!(found, [api, dashboard, elsewhere], "{path}");
        }
    }

    #[test]
    fn the_metrics_need_their_token_too() {
        let admission = admission();
        let unauthorized = Some(Code::Unauthorized);
        for (authorization, expected) in [
            ("Bearer 0123456789abcdef", None),
            ("bearer  0123456789abcdef", None),
            ("Bearer 0123456789abcdeg", unauthorized),
            ("Bearer", unauthorized),
            ("Basic 0123456789abcdef", unauthorized),
        ] {
            assert_eq!(code(&admission, "/metrics", "fd00::1", authorization), expected);
        }
    }

    #[test]
    fn without_settings_everyone_is_taken() {
        let open = Admission::new(&ServerConfig::default()).unwrap();
        for path in ["/metrics", "/v1/tenants", "/dashboard"] {
            assert_eq!(code(&open, path, "192.0.2.1", "none"), None);
        }
    }
}
