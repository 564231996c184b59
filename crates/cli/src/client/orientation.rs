//! Where the caller is: the wrong server, the wrong path, the wrong tenant.

use serde_json::Value;
use url::Url;

use super::{Client, Failure, Method};

/// Tenants that a hint names.
const TENANTS_NAMED_MAX: usize = 10;
const CHOOSE_TENANT: &str = "choose a tenant with --tenant or RAILPOST_TENANT";

impl Client {
    /// Whether the server's URL has a path of its own.
    pub(super) fn has_path(&self) -> bool {
        self.base.path() != "/"
    }

    /// Something answered, but not as a Railpost server does.
    pub(super) fn is_not_railpost(&self, how: &str) -> Failure {
        let root = self.base.join("/").unwrap_or_else(|_| self.base.clone());
        let at_root = root.as_str().trim_end_matches('/');
        if self.has_path() && self.is_railpost(&root) {
            let path = self.base.path();
            let message =
                format!("the path `{path}` in the server's URL {} is too much", self.base);
            return Failure::new(message)
                .next(format!("set --server or RAILPOST_URL to {at_root}"));
        }
        let message = format!("{} is not a Railpost server: it answered {how}", self.base);
        Failure::new(message).next(
            "set --server or RAILPOST_URL to the URL that `railpost serve` prints, and check any proxy in front of it",
        )
    }

    /// Something answered, but not in TLS, although the server's URL says https.
    pub(super) fn speaks_no_tls(&self) -> Failure {
        let (base, plain) = (&self.base, plain_http(&self.base));
        let message = format!("no TLS connection to {base}: the server may speak http");
        Failure::new(message).next(format!("try it: set --server or RAILPOST_URL to {plain}"))
    }

    /// Whether this URL answers as a Railpost server does, to a request without a key.
    fn is_railpost(&self, root: &Url) -> bool {
        let client = Self { base: root.clone(), key: None, ..self.clone() };
        let answer = client.try_once(&Method::GET, &client.of_server(&["whoami"]), None, None);
        let body = answer.map(|(_, bytes)| bytes).unwrap_or_default();
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        problem["code"].is_string()
    }

    /// What to say when a list of this URL is empty.
    pub(in super::super) fn why_nothing(&self, list: &Url) -> String {
        let own = format!("{}/", self.of_tenant(&[]).path());
        if !list.path().starts_with(&own) {
            return "There is nothing to show.".to_owned();
        }
        let tenant = &self.tenant;
        let what = match list.query() {
            None => format!("There is nothing to show in tenant `{tenant}`."),
            Some(_) => format!("Nothing in tenant `{tenant}` matches."),
        };
        match self.other_tenants() {
            Some(others) => format!("{what} Other tenants: {others}; {CHOOSE_TENANT}."),
            None => what,
        }
    }

    /// Which tenants there are beside the one that was asked for, as far as the key may see.
    fn other_tenants(&self) -> Option<String> {
        let mut url = self.of_server(&["tenants"]);
        url.set_query(Some("limit=100"));
        let page = self.get(&url).ok()?;
        let users = page["items"].as_array()?.iter().filter(|tenant| tenant["reserved"] != true);
        let ids = users.filter_map(|tenant| tenant["id"].as_str());
        let others: Vec<String> =
            ids.filter(|id| *id != self.tenant).map(|id| format!("`{id}`")).collect();
        if others.is_empty() {
            return None;
        }
        let named = others.iter().take(TENANTS_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if others.len() > TENANTS_NAMED_MAX { " and more" } else { "" };
        Some(format!("{named}{more}"))
    }

    /// How to find a thing that the server does not know.
    pub(super) fn how_to_find(&self, what: &str) -> String {
        let list = match what {
            "tenant" => return self.how_to_find_tenant(),
            "endpoint" | "secret" => "endpoints list",
            "event" => "events list",
            "delivery" => "deliveries list",
            "dead letter" => "dead-letters list",
            "lane" | "held lane" => "lanes list --held",
            "replay" => "replay list",
            "key" | "API key" => "keys list",
            "event type" => "event-types list",
            "source" => return "`railpost outbox status` lists them".to_owned(),
            "parked row" => return "`railpost outbox parked list SOURCE` lists them".to_owned(),
            "alert" => return "`railpost alerts list` lists them".to_owned(),
            "silence" => return "`railpost alerts silences` lists them".to_owned(),
            "role" => return "`railpost outbox grants` lists them".to_owned(),
            _ => {
                return "check that the server has the same version: `railpost --version`"
                    .to_owned();
            }
        };
        format!("`railpost {list} --tenant {}` lists them", self.tenant)
    }

    fn how_to_find_tenant(&self) -> String {
        if let Some(others) = self.other_tenants() {
            return format!("the server has {others}: {CHOOSE_TENANT}");
        }
        let own = self.get(&self.of_server(&["whoami"])).ok();
        match own.as_ref().and_then(|whoami| whoami["tenant"].as_str()) {
            Some(own) => format!("this API key is for tenant `{own}` alone: use --tenant {own}"),
            None => "`railpost tenants list` (with an admin key) lists them".to_owned(),
        }
    }
}

/// The same host and port by http.
fn plain_http(https: &Url) -> String {
    let mut url = https.clone();
    let is_set =
        url.set_scheme("http").is_ok() && url.set_port(https.port_or_known_default()).is_ok();
    let url = if is_set { url.as_str() } else { "http://…" };
    url.trim_end_matches('/').to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn plain_http_keeps_the_port() {
        for (https, http) in [
            ("https://localhost:8087/", "http://localhost:8087"),
            ("https://localhost/", "http://localhost:443"),
        ] {
            assert_eq!(plain_http(&Url::parse(https).unwrap()), http);
        }
    }
}
