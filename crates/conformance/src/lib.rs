//! One suite for every backend: what the contract says, as checks that can fail.
//!
//! A backend brings a [`Harness`] and runs all of it with one line:
//!
//! ```text
//! railpost_conformance::conformance_tests!(MyHarness::new());
//! ```
//!
//! [`model`] compares a backend with the memory store, call by call.

// A check fails by panicking.
#![allow(clippy::unwrap_used)]

pub mod erasing;
pub mod many;
pub mod model;

mod world;
mod intake;
mod ledger;
mod loads;
mod lines;
mod registry;
mod access;
mod archive;
mod details;
mod finding;
mod replays;
mod figures;
mod judging;
mod upkeep;
mod rotations;
mod sources;
mod alerts;

use std::sync::Arc;

pub use world::{Harness, ManualSource, World};

/// Runs one check on a fresh store.
pub fn run<F: Future<Output = ()>>(harness: Arc<dyn Harness>, check: impl FnOnce(World) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async { check(World::new(harness).await).await });
}

/// Lists all checks once: for the tests of a backend, and for [`names`]. The `$` is for the macro
/// within the macro.
macro_rules! checks {
    ($d:tt $($room:ident { $($name:ident)* })*) => {
        /// The names of all checks.
        pub fn names() -> Vec<&'static str> {
            vec![$($(stringify!($name)),*),*]
        }

        $($(
            #[doc = concat!("Checks that ", stringify!($name), ".")]
            pub fn $name(harness: Arc<dyn Harness>) {
                run(harness, $room::$name);
            }
        )*)*

        /// Makes a test of every check, for a harness.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d harness:expr) => {
                $($(
                    #[test]
                    fn $name() {
                        $d crate::$name(::std::sync::Arc::new($d harness));
                    }
                )*)*
            };
        }
    };
}

checks! { $
    intake {
        an_accepted_event_reads_back_as_it_was_published
        the_attributes_of_a_cloudevent_reach_the_attempt
        each_event_goes_to_the_endpoints_that_want_its_type
        a_test_event_goes_where_it_is_told_and_nowhere_else
        a_notice_goes_to_endpoints_that_name_notices_and_to_no_other
        an_event_that_nobody_wants_is_kept
        another_tenants_endpoints_get_nothing
        a_switched_off_endpoint_keeps_its_backlog
        a_removed_endpoint_gets_nothing
        a_changed_filter_counts_from_the_next_accept_on
        seqs_of_one_key_count_from_one_without_gaps
        each_endpoint_has_lanes_of_its_own
        keys_that_differ_in_any_byte_have_lanes_of_their_own
        ordering_decides_who_has_a_place_in_line
        a_global_endpoint_has_one_lane_for_everything
        seqs_stay_contiguous_under_concurrent_accepts
        delivery_ids_ascend_in_the_order_of_acceptance
        an_event_accepted_twice_is_delivered_once
        an_event_that_many_publish_at_once_is_accepted_once
        an_event_is_known_again_after_many_others
        a_reused_event_id_names_what_differs
        two_tenants_may_choose_the_same_event_id
        a_refused_batch_leaves_nothing_behind
        an_id_that_stands_twice_in_a_batch_is_refused
        a_full_backlog_refuses_until_something_is_delivered
        an_unknown_tenant_is_named
        an_empty_batch_is_accepted_as_nothing
        a_payload_at_the_bound_is_kept_and_one_beyond_is_named
        a_batch_at_the_bound_is_accepted_and_one_beyond_is_named
        an_event_can_be_delivered_again_at_the_end_of_its_lane
        an_event_can_be_delivered_to_an_endpoint_that_never_had_it
        a_redelivery_of_what_is_unknown_is_refused_whole
        a_redelivery_commits_with_its_audit_entry
    }
    ledger {
        a_recorded_state_reads_back_in_every_detail
        what_is_recorded_is_seen_by_the_next_load
        an_illegal_transition_is_skipped_and_the_rest_is_recorded
        a_record_never_lowers_the_count_of_attempts
        every_pair_of_stages_is_guarded_as_the_engine_says
        a_transition_of_an_unknown_delivery_is_skipped
        two_transitions_of_one_delivery_in_a_batch_are_both_recorded
        an_empty_record_is_fine
        attempts_read_back_in_order_with_every_detail
        a_retry_after_reads_back_with_its_attempt
        an_attempt_of_a_skipped_transition_is_not_kept
        a_long_response_is_cut_to_its_bound
        an_endpoints_status_is_recorded
        a_record_does_not_undo_what_a_person_decided
        an_endpoint_that_is_switched_off_is_in_the_audit_trail
        a_decision_is_recorded_with_its_audit_entry
        a_record_of_an_earlier_owner_is_fenced
        a_fence_leaves_other_partitions_alone
        a_parcel_holds_all_that_a_sender_needs
        parcels_come_for_many_deliveries_at_once
    }
    loads {
        a_lane_loads_its_open_deliveries_by_seq
        a_full_page_of_a_lane_ends_with_its_last_delivery
        a_lane_that_ends_before_the_asked_for_seq_says_so
        a_lane_that_is_unknown_or_anothers_is_empty
        a_drained_lane_remembers_its_last_seq
        loads_of_one_call_are_answered_as_each_would_be_alone
        one_bad_load_of_a_call_refuses_all_of_them
        open_lanes_load_in_pages_by_ascending_id
        closed_lanes_are_not_loaded
        a_window_shows_where_it_was_cut
        unkeyed_deliveries_load_by_ascending_id
        what_waits_longer_is_left_out_and_the_earliest_is_named
        what_waits_longer_than_any_policy_plans_is_listed
        a_dead_letter_that_left_its_lane_is_replayed_outside_of_it
        replayed_dead_letters_and_unkeyed_deliveries_load_in_one_order
        a_held_lane_is_replayed_in_its_place
        a_skipped_dead_letter_leaves_its_lane_for_good
        a_removed_endpoint_has_nothing_to_load
        a_load_out_of_bounds_is_named
    }
    lines {
        each_lane_of_each_endpoint_has_a_line_of_its_own
        a_new_era_begins_new_lines_and_leaves_the_old_ones_alone
        a_restored_store_never_uses_a_number_of_a_line_twice
        what_is_open_goes_out_in_a_new_line_after_a_restore
        lines_are_told_apart_however_often_a_store_is_restored
        what_was_skipped_is_passed_over
        what_is_discarded_out_of_order_is_passed_over_too
        a_redelivery_is_a_replay_from_its_first_attempt_on
        a_dead_letter_that_left_its_lane_keeps_its_line
        a_lane_that_stood_empty_for_long_goes_and_its_key_begins_a_new_line
        what_a_removed_endpoint_has_open_is_discarded_in_small_steps
        a_sweep_lists_what_is_open_in_a_stretch_of_ids
        a_sweep_tells_the_era
        an_event_of_the_future_keeps_none_behind_it_from_being_pruned
        a_healthy_store_is_found_to_be_whole
    }
    registry {
        a_tenant_reads_back_and_changes
        a_tenant_cannot_appear_twice
        tenants_list_by_id_in_pages
        an_endpoint_reads_back_in_every_detail
        a_change_from_an_old_revision_is_refused
        endpoints_list_in_pages_without_those_removed
        switching_an_endpoint_on_forgets_its_failures
        a_secret_that_comes_later_than_its_endpoint_is_a_rotation
        a_removed_endpoint_has_no_secrets_left
        secrets_of_both_kinds_read_back
        a_secret_is_changed_only_through_its_own_endpoint
        an_endpoint_has_a_bounded_number_of_secrets
        event_types_read_back_and_list_by_name
        a_change_is_made_whole_or_not_at_all
        writes_of_one_change_see_each_other
        what_does_not_exist_cannot_be_changed
        bad_settings_name_the_field_and_the_bound
    }
    access {
        an_api_key_is_found_by_its_hash
        a_revoked_api_key_stays_revoked
        the_last_admin_key_without_an_end_stays
        an_api_key_can_be_renamed
        no_two_api_keys_have_the_same_hash
        api_keys_list_in_pages
        an_audit_entry_commits_with_its_change
        an_answered_request_is_recalled
        a_stored_answer_tells_what_became_of_each_event
        of_two_requests_with_one_key_only_one_does_the_work
        a_refused_request_leaves_its_key_unused
        a_repeated_change_is_not_made_again
        an_expired_key_may_be_used_again
    }
    archive {
        events_list_the_latest_first
        a_listed_event_shows_all_but_its_payload
        events_list_by_type_key_and_time
        lists_show_nothing_of_another_tenant
        deliveries_list_the_latest_first
        deliveries_list_by_endpoint_stage_key_type_and_time
        a_delivery_shows_its_event_and_its_times
        the_deliveries_of_an_event_come_together
        a_cursor_stays_where_it_is_while_rows_come_and_go
        a_cursor_of_another_list_is_refused
        a_limit_out_of_bounds_is_named
        attempts_list_in_pages
        the_last_attempts_of_many_deliveries_come_together
        held_lanes_list_the_longest_held_first
        a_held_lane_is_found_by_its_id_and_tenant
        a_page_says_how_many_rows_it_looked_at
        counts_follow_every_transition
        the_oldest_open_delivery_tells_the_age_of_the_backlog
        totals_add_up_the_endpoints_of_one_tenant_or_of_all
        a_removed_endpoint_counts_for_nothing
    }
    details {
        deliveries_list_by_reason
        deliveries_list_by_their_last_answer
        an_event_counts_its_deliveries_by_state
        the_settings_of_many_endpoints_come_together
        an_event_tells_who_brought_it
        the_audit_trail_is_found_by_its_targets
    }
    finding {
        each_kind_of_thing_is_found_by_its_fields
        a_search_finds_nothing_of_another_tenant
        a_search_finds_a_bounded_number_with_what_is_just_the_words_first
    }
    replays {
        a_replay_reads_back_in_every_detail
        a_replay_goes_on_from_its_last_progress
        a_finished_replay_cannot_be_changed
        a_replay_belongs_to_one_tenant_that_exists
        replays_list_the_latest_first
        running_replays_of_all_tenants_are_found
        a_replay_is_made_once_with_its_audit_entry_and_its_answer
        a_tenant_has_a_bounded_number_of_running_replays
        no_tenant_can_take_the_places_of_all_replays
        a_bad_replay_names_the_field
        replays_are_pruned_when_they_ended_long_ago
        replays_are_erased_with_their_tenant
        a_backup_holds_replays
    }
    judging {
        late_is_what_was_neither_acknowledged_in_time_nor_discarded
        late_is_only_what_was_made_in_the_stretch
        what_stands_behind_an_attempted_head_is_told_apart
        an_attempt_of_an_earlier_round_counts_as_one
        late_deliveries_have_the_status_of_their_endpoint
        nothing_is_late_at_endpoints_and_tenants_that_are_gone
        more_late_deliveries_than_a_page_holds_are_all_found_once
        what_was_judged_is_added_once_whoever_asks_again
        of_those_who_judge_at_once_one_is_believed
        bad_figures_of_what_was_judged_move_nothing
        how_far_was_judged_outlives_pruning_erasing_and_a_backup
    }
    figures {
        figures_read_back_in_every_detail
        figures_add_up_by_minute_and_by_hour
        histograms_of_figures_add_up
        figures_of_each_scope_stand_alone
        figures_list_what_begins_in_the_period
        figures_of_what_is_not_there_are_left_out
        a_removed_endpoint_keeps_its_figures
        figures_added_at_once_all_count
        more_figures_than_an_answer_holds_are_refused
        bad_figures_name_the_bound_and_add_nothing
        figures_are_pruned_by_the_clock
        figures_are_erased_with_their_tenant
        more_figures_than_one_step_erases_are_all_erased
        a_backup_holds_figures
    }
    upkeep {
        pruning_deletes_what_is_old_and_closed
        pruning_leaves_open_deliveries_and_lane_seqs_alone
        an_event_is_kept_until_its_last_delivery_is_closed
        dead_letters_are_kept_for_as_long_as_asked
        open_deliveries_of_a_removed_endpoint_are_pruned
        redeliveries_are_pruned_with_their_event
        pruning_forgets_old_audit_and_expired_idempotency
        a_step_out_of_bounds_is_named
        a_tenant_that_is_being_erased_is_unknown_and_keeps_its_id
        erasing_goes_on_in_small_steps_where_it_was_interrupted
        only_a_marked_tenant_is_erased
        an_erased_tenant_leaves_nothing
        erasing_one_tenant_leaves_the_others_alone
        a_backup_holds_all_of_it_and_goes_on_from_there
        a_backup_refuses_the_wrong_master_key
        a_backup_never_overwrites_a_file
        no_secret_can_be_read_in_a_backup
        a_healthy_store_says_so
    }
    rotations {
        the_master_key_is_rotated_in_small_steps
        a_backup_in_the_middle_of_a_rotation_needs_both_keys_and_goes_on
        a_store_that_is_opened_with_two_keys_begins_their_rotation
        a_rotation_of_secrets_is_due_by_the_newest_that_lasts
    }
    sources {
        one_holder_has_the_lease_of_a_source
        who_lost_the_lease_writes_nothing
        a_position_reads_back
        parked_rows_read_back_in_order
        rows_judged_by_old_holds_are_not_parked
        a_row_that_is_parked_already_stays_where_it_is
        a_source_has_a_bounded_number_of_parked_rows
        a_retried_row_brings_those_behind_it
        a_skipped_row_releases_those_behind_it
        a_command_names_a_head
        all_heads_can_be_commanded_at_once
        a_source_with_parked_rows_is_not_forgotten
        parked_rows_are_erased_with_their_tenant
        a_backup_holds_parked_rows_and_positions
    }
    alerts {
        an_alert_reads_back_in_every_detail
        an_alert_is_open_until_all_of_it_is_told
        alerts_are_saved_in_place_of_what_was_kept
        alerts_list_the_latest_first_by_what_is_asked_for
        alerts_of_what_is_not_there_are_left_out
        a_bad_alert_names_the_field
        a_silence_is_kept_until_it_ends
        a_bad_silence_is_refused
        silences_are_bounded
        alerts_are_pruned_when_they_ended_long_ago
        alerts_are_erased_with_their_tenant
        a_backup_holds_alerts_and_silences
    }
}
