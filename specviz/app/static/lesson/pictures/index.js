/**
 * The picture of each kind of step. A picture is {node, reveal(moves)}: the node as it is before the guess, and a function that shows
 * the rest, animated if that explains something. A picture with a control calls `onTry` with the query that opens its current state
 * elsewhere on the page. Knows the kinds, but no other steps.
 */

import { blockPicture } from "./block.js";
import { coinPicture } from "./coin.js";
import { distributionsPicture } from "./distributions.js";
import { leniencePicture } from "./lenience.js";
import { losslessnessPicture } from "./losslessness.js";
import { racePicture } from "./race.js";
import { rejectionsPicture } from "./rejections.js";
import { roundPicture } from "./round.js";
import { rulePicture } from "./rule.js";
import { textPicture } from "./text.js";
import { tradeoffPicture } from "./tradeoff.js";

const MAKERS = { block: blockPicture, coin: coinPicture, distributions: distributionsPicture, lenience: leniencePicture,
  losslessness: losslessnessPicture, race: racePicture, rejections: rejectionsPicture, round: roundPicture, rule: rulePicture,
  text: textPicture, tradeoff: tradeoffPicture };

/** The picture of a step; `more` has the language and the methods' words. */
export const pictureOf = (step, more) => MAKERS[step.kind](step.data, { values: step.values, ...more });
